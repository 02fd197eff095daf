from __future__ import annotations

import pytest
import torch

from manyview.core.sample import Sample
from manyview.data.fingerprint import few_samples, fingerprint, usual_shape
from manyview.data.selection import subset
from tests.data.fakes import Memory
from tests.data.random_pictures import Paired, Pictures


def test_other_ids_labels_classes_or_pixels_are_another_fingerprint() -> None:
    data = Memory(40, 4)
    plain = fingerprint(data)
    assert plain == fingerprint(Memory(40, 4))
    assert plain[0] == 40
    others = [
        fingerprint(subset(data, range(39))),
        fingerprint(data, labels=data.labels),
        fingerprint(data, labels=data.labels, classes=data.classes),
        fingerprint(data, few_samples(data)),
    ]
    assert len({plain, *others}) == 5


def test_a_few_samples_are_spread_over_the_data_and_can_be_read() -> None:
    assert [sample.index for sample in few_samples(Pictures(160))] == list(range(0, 160, 10))
    assert [sample.index for sample in few_samples(Pictures(32, unreadable=(0, 4)))] == [2, *range(6, 32, 2)]


def test_the_usual_shape_is_the_median_of_the_shorter_sides() -> None:
    few = [Sample(i, i, {"image": torch.empty(3, side, 50)}) for i, side in enumerate((20, 90, 30))]
    assert usual_shape(few, "image") == (3, 30)
    assert usual_shape(few_samples(Paired(40)), "depth") == (1, 20)
    with pytest.raises(ValueError, match="data: of its thermal images none that was looked at can be read"):
        usual_shape(few, "thermal")
