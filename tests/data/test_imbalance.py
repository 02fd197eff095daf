"""Label imbalance: how many of each class, which ones, and that nothing else decides."""

from __future__ import annotations

import math

import pytest
import torch

from manyview.data.dataset import Dataset
from manyview.data.imbalance import imbalanced, keep_shares
from manyview.data.selection import subset
from tests.data.fakes import BatchedMemory, Memory


def counts(data: Dataset) -> list[int]:
    assert data.labels is not None
    return torch.bincount(data.labels, minlength=len(data.classes)).tolist()


def test_linear_keeps_a_tenth_of_the_first_class_and_all_of_the_last() -> None:
    assert counts(imbalanced(Memory(1000, 10))) == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_exponential_falls_by_e_from_class_to_class() -> None:
    kept = counts(imbalanced(Memory(50_000, 10), "exponential"))
    assert kept == [math.floor(5000 * math.exp(label - 9)) for label in range(10)]
    assert kept[0] == 0
    assert kept[-1] == 5000


def test_a_hundred_classes_go_by_tens() -> None:
    shares = keep_shares(100, "linear")
    assert shares[0] == shares[9] == pytest.approx(0.1)
    assert shares[10] == pytest.approx(0.2)
    assert shares[99] == 1
    assert keep_shares(100, "exponential")[85] == pytest.approx(math.exp(9) / math.exp(10))
    assert keep_shares(100, "linear", group=1)[0] == pytest.approx(0.01)


def test_groups_that_do_not_divide_the_classes_end_with_everything() -> None:
    assert keep_shares(5, "linear", group=2) == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1])


def test_the_order_of_the_data_does_not_matter() -> None:
    whole = Memory(200, 4)
    shuffled = subset(whole, torch.randperm(200, generator=torch.Generator().manual_seed(1)))
    assert set(imbalanced(whole).ids.tolist()) == set(imbalanced(shuffled).ids.tolist())


def test_the_seed_matters_and_is_all_that_does() -> None:
    first, again, other = (imbalanced(Memory(200, 4), seed=seed).ids.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    torch.manual_seed(5)
    assert imbalanced(Memory(200, 4), seed=1).ids.tolist() == first


def test_a_larger_share_holds_the_smaller() -> None:
    rare = imbalanced(Memory(200, 4), "exponential")
    assert set(rare.ids.tolist()) <= set(imbalanced(Memory(200, 4), "linear").ids.tolist())


def test_which_samples_are_kept_is_fixed_for_ever() -> None:
    assert imbalanced(Memory(12, 2)).ids.tolist() == [10, 24, 31, 38, 52, 59, 66, 73, 80]


def test_batches_survive() -> None:
    assert hasattr(imbalanced(BatchedMemory(20, 2)), "batch")


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="has no labels"):
        imbalanced(Memory(10, 2, labelled=False))
    with pytest.raises(ValueError, match="expected 'linear' or 'exponential', got 'cubic'"):
        imbalanced(Memory(10, 2), "cubic")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="group: expected at least 1"):
        imbalanced(Memory(10, 2), group=0)
    with pytest.raises(ValueError, match="leaves no sample"):
        imbalanced(subset(Memory(10, 10), [0]))
