"""All splits of a folder of paired modalities as one data set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from manyview.data import Folder, Paired, open_data
from manyview.data.dataset import partial_sample, present
from manyview.data.joined import Joined, open_paired_splits
from manyview.data.selection import missing, only_modalities
from tests.tiny import pictures, sensors


@pytest.fixture
def street(tmp_path: Path) -> Path:
    return sensors(tmp_path / "street", 4, classes=2)


def test_without_a_split_all_splits_of_paired_folders_are_one_data_set(street: Path) -> None:
    every = open_data(street, split=None)
    assert isinstance(every, Joined)
    parts = {split: Paired(street, split=split) for split in ("train", "test")}
    assert (len(every), every.modalities, every.classes) == (8, ("rgb", "depth", "thermal"), ("class0", "class1"))
    assert torch.equal(every.ids, torch.cat([part.ids for part in parts.values()]))
    assert every.labels is not None
    assert every.labels.tolist() == [0, 0, 1, 1] * 2
    for row, (part, place) in enumerate((part, place) for part in parts.values() for place in range(4)):
        sample, expected = every[row], part[place]
        assert (sample.index, sample.id, every.name(row)) == (row, expected.id, part.name(place))
        assert every.paths(row) == part.paths(place)
        assert all(torch.equal(sample.modalities[name], expected.modalities[name]) for name in every.modalities)
    assert every[-1].index == 7
    with pytest.raises(IndexError):
        every[8]


def test_a_split_may_lack_a_modality_or_all_of_them(street: Path) -> None:
    shutil.rmtree(street / "test" / "depth")
    shutil.rmtree(street / "test" / "thermal")
    pictures(street / "unlabeled" / "elsewhere", 2)
    every = open_data(street, split=None)
    assert isinstance(every, Joined)
    assert list(every.parts) == ["train", "test"]
    assert present(every, 4) == {"rgb"}
    assert missing(every) == {"depth": 4, "thermal": 4}
    assert set(partial_sample(every, 0, ("depth",)).modalities) == {"depth"}
    assert len(only_modalities(every, ("depth",))) == 4
    assert open_data(street, split=None, modalities=("depth", "rgb")).modalities == ("depth", "rgb")


def test_labels_stay_where_those_that_have_some_agree(street: Path) -> None:
    alike = open_paired_splits(str(street), labels=False)
    assert alike is not None
    assert (alike.labels, alike.classes) == (None, ())
    other = {"a": Paired(street, split="train"), "b": Paired(street, split="test", labels=False)}
    joined = Joined(other)
    assert joined.labels is not None
    assert joined.labels.tolist() == [0, 0, 1, 1, -1, -1, -1, -1]


def test_plain_folders_are_none(tmp_path: Path) -> None:
    for split in ("train", "test"):
        pictures(tmp_path / split, 2)
    assert open_paired_splits(str(tmp_path)) is None
    assert isinstance(open_data(tmp_path, split=None), Folder)
