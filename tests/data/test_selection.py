"""Subsets keep what a sample is and renumber where it is."""

from __future__ import annotations

import pytest
import torch

from manyview.data.dataset import Batched, Dataset
from manyview.data.selection import subset
from tests.data.fakes import BatchedMemory, Memory


def test_ids_and_labels_stay_and_the_index_is_dense() -> None:
    whole = Memory(10, 3)
    part = subset(whole, [7, 2])
    assert isinstance(part, Dataset)
    assert part.ids.tolist() == [whole[7].id, whole[2].id]
    assert part.labels is not None
    assert part.labels.tolist() == [1, 2]
    assert part.classes == whole.classes
    assert part.modalities == whole.modalities
    assert part.name(0) == "number 7"
    assert (part[0].id, part[0].index, part[0].label) == (whole[7].id, 0, 1)
    assert part[1].index == part[-1].index == 1
    assert torch.equal(part[-1].modalities["image"], whole[2].modalities["image"])
    with pytest.raises(IndexError):
        part[2]


def test_a_boolean_for_each_row_works() -> None:
    assert subset(Memory(4, 2), torch.tensor([True, False, False, True])).ids.tolist() == [3, 24]


def test_a_subset_of_a_subset_finds_the_same_samples() -> None:
    twice = subset(subset(Memory(10, 2), [9, 8, 7]), [2, 0])
    assert [twice.name(i) for i in range(2)] == ["number 7", "number 9"]


def test_batches_are_passed_on_where_there_are_any() -> None:
    assert not isinstance(subset(Memory(5, 2), [1]), Batched)
    part = subset(BatchedMemory(5, 2), [4, 1])
    assert isinstance(part, Batched)
    assert part.batch(torch.tensor([1, 0]))["image"][:, 0, 0, 0].tolist() == [1, 4]


def test_without_labels_there_are_none() -> None:
    assert subset(Memory(5, 2, labelled=False), [1]).labels is None


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([5], "expected rows 0 to 4, got 5 to 5"),
        ([-1], "expected rows 0 to 4"),
        ([1, 1], "twice"),
        ([], "no samples are left"),
        ([0.5], "whole numbers"),
        ([[1]], "whole numbers"),
        ([True], r"expected \(5,\) booleans"),
    ],
)
def test_a_wrong_index_is_refused(index: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subset(Memory(5, 2), index)
