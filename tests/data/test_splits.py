"""Which folder names are splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyview.data.splits import find_splits, pick_split


def folders(root: Path, *names: str) -> str:
    for name in names:
        (root / name).mkdir()
    return str(root)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("train", "test"), {"train": "train", "test": "test"}),
        (("train2017", "val2017", "annotations"), {"train": "train2017", "val": "val2017"}),
        (("Training", "Validation"), {"train": "Training", "val": "Validation"}),
        (("train", "unlabelled"), {"train": "train", "unlabeled": "unlabelled"}),
        (("train",), {"train": "train"}),
        (("aeroplane", "bus", "train"), {}),  # a class of railway trains
        (("training-day", "tests"), {}),
        (("train", ".git"), {"train": "train"}),
        ((), {}),
    ],
)
def test_splits_are_found_by_name(tmp_path: Path, names: tuple[str, ...], expected: dict[str, str]) -> None:
    assert find_splits(folders(tmp_path, *names)) == expected


def test_a_split_may_be_called_as_its_folder(tmp_path: Path) -> None:
    root = folders(tmp_path, "train2017", "val2017")
    assert pick_split(root, "val2017") == "val2017"
    assert pick_split(root, "val") == "val2017"
    assert pick_split(root, None) == ""


def test_train_of_an_undivided_folder_is_all_of_it(tmp_path: Path) -> None:
    assert pick_split(folders(tmp_path, "cat", "dog"), "train") == ""
