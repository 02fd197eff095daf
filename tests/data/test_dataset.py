from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset, few_samples, fingerprint, id_of, label_target, usual_shape
from manyview.data.folder import Folder
from manyview.data.selection import subset
from tests.data.awful import picture
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


def test_a_file_replaced_in_place_is_another_fingerprint_by_its_size_or_its_time(tmp_path: Path) -> None:
    for number in range(40):
        picture(seed=number).save(tmp_path / f"{number:02d}.bmp")
    os.utime(tmp_path / "07.bmp", (1e9, 1e9))
    folder = Folder(tmp_path)
    before = fingerprint(folder, few_samples(folder))
    assert before == fingerprint(folder, few_samples(folder))
    picture(seed=99).save(tmp_path / "07.bmp")  # which is not among the few
    ids, sizes, times = (a == b for a, b in zip(before[1:], fingerprint(folder, few_samples(folder))[1:], strict=True))
    assert (ids, sizes, times) == (True, True, False)
    picture(9, 9).save(tmp_path / "07.bmp")
    assert fingerprint(folder, few_samples(folder))[:2] == before[:2]
    assert fingerprint(folder, few_samples(folder))[2] != before[2]
    part = subset(folder, range(7))
    whole = fingerprint(part)
    (tmp_path / "08.bmp").unlink()
    assert fingerprint(part) == whole
    assert fingerprint(folder)[2] != before[2]  # a file that is gone is no error here


def test_what_is_no_file_has_no_sizes_and_times() -> None:
    assert fingerprint(Memory(4, 2))[2:] == fingerprint(subset(Memory(4, 2), [1]))[2:] == (0, 0)
