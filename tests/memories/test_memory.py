from __future__ import annotations

import math

import pytest
import torch

from manyview.memories import MEMORIES, Memory, bank, batch, queue

IDS = torch.tensor([3, 1, 4])


def test_the_batch_keeps_nothing_and_gives_nothing_but_itself() -> None:
    each = batch(2)
    each.start(10)
    each.update([torch.randn(3, 2)] * 2, IDS, IDS)
    assert each.negatives(IDS, IDS, step=0) is None
    assert each.positives(IDS) is None
    assert each.within_batch == 1.0
    assert each.size is None
    assert not each.state_dict()


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="within_batch: expected a weight of at least 0, got"):
        Memory(weight)
    with pytest.raises(ValueError, match="within_batch: expected a weight of at least 0, got"):
        queue(2, size=4, within_batch=weight)


def test_the_table_names_them() -> None:
    assert {"batch": batch, "queue": queue, "bank": bank} == MEMORIES
