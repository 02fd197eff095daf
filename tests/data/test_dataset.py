from __future__ import annotations

import pytest
import torch

from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset, few_samples, fingerprint, id_of, label_target, usual_shape
from manyview.data.selection import subset
from tests.data.fakes import BatchedMemory, Memory
from tests.data.random_pictures import Paired, Pictures


def test_a_data_set_is_what_has_the_attributes_of_one() -> None:
    assert isinstance(Memory(2, 2), Dataset)
    assert not isinstance([1, 2], Dataset)
    assert isinstance(BatchedMemory(2, 2), Batched)
    assert not isinstance(Memory(2, 2), Batched)


def test_an_id_is_the_same_on_every_machine_and_not_negative() -> None:
    assert id_of("rgb/a.png") == 919272300594482635
    assert id_of("caf\udce9.png") != id_of("caf\u00e9.png")  # a name that is not UTF-8 is a name all the same
    assert all(0 <= id_of(str(number)) < 2**63 for number in range(100))


def test_a_class_that_is_not_known_is_no_target() -> None:
    labels = torch.tensor([3, -1])
    assert label_target(labels, 0) == {"label": 3}
    assert label_target(labels, 1) == {}
    assert label_target(None, 0) == {}


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
