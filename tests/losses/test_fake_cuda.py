"""Losses on a GPU, as far as that can be told without one: no tensor on another device, and nothing waits for it."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from manyview.core.negatives import Negatives
from manyview.losses import alignment, bfloat16_matmul, cacr, info_nce, jcl, nce, nce_partition, uniformity
from tests.fake_cuda import fake_cuda
from tests.losses.every_loss import Loss, for_every_loss
from tests.losses.layouts import TINY, Layout, batch, for_every_layout, large_bank, make, many_tiles, queue


def assert_is_a_number_on_the_gpu(loss: Tensor) -> None:
    assert (loss.device.type, loss.shape) == ("cuda", ())


def test_these_tests_can_fail() -> None:
    real = torch.ones(2)
    with fake_cuda() as cuda:
        moved, here = cuda.tensor(real), torch.ones(2)
        with pytest.raises(RuntimeError, match="device"):
            moved + here
        with pytest.raises(DataDependentOutputException):
            float(moved.sum())


@for_every_layout
@for_every_loss
def test_no_layout_of_negatives_waits_for_the_gpu(loss: Loss, layout: Layout) -> None:
    given = make(layout)
    with fake_cuda() as cuda:
        moved = cuda.tensor(given.query), cuda.tensor(given.positives), cuda.negatives(given.negatives)
        assert_is_a_number_on_the_gpu(loss(*moved))


@for_every_layout
def test_no_more_does_a_problem_of_many_tiles(layout: Layout) -> None:
    given = make(layout)
    with many_tiles(), patch("manyview.losses.tiles.CUDA_TILE", TINY), fake_cuda() as cuda:
        moved = cuda.tensor(given.query), cuda.tensor(given.positives), cuda.negatives(given.negatives)
        assert_is_a_number_on_the_gpu(cacr(*moved))
        assert_is_a_number_on_the_gpu(nce(*moved, population=40, partition=55.0))


@for_every_loss
def test_absent_positives_do_not_make_it_wait(loss: Loss) -> None:
    given, present = make(batch), torch.ones(9, 2, dtype=torch.bool)
    with fake_cuda() as cuda:
        moved = cuda.tensor(given.query), cuda.tensor(given.positives), cuda.negatives(given.negatives)
        assert_is_a_number_on_the_gpu(partial(loss, present=cuda.tensor(present))(*moved))


@pytest.mark.parametrize("loss", [info_nce, jcl], ids=["info_nce", "jcl"])
@pytest.mark.parametrize("layout", [queue, batch], ids=["queue", "batch"])
def test_a_temperature_that_learns_is_not_read(loss: Loss, layout: Layout) -> None:
    given, temperature = make(layout), torch.tensor(0.1, requires_grad=True)
    with fake_cuda() as cuda:
        moved = cuda.tensor(given.query), cuda.tensor(given.positives), cuda.negatives(given.negatives)
        assert_is_a_number_on_the_gpu(partial(loss, temperature=cuda.tensor(temperature))(*moved))


def test_the_partition_that_a_batch_gave_is_not_read() -> None:
    given = make(large_bank)
    with fake_cuda() as cuda:
        moved = cuda.tensor(given.query), cuda.tensor(given.positives), cuda.negatives(given.negatives)
        partition = nce_partition(*moved, population=200)
        assert_is_a_number_on_the_gpu(partition)
        assert_is_a_number_on_the_gpu(nce(*moved, population=200, partition=partition))


def test_half_precision_stays_on_the_gpu() -> None:
    given, keys = make(batch), torch.randn(7, 3).half()
    with fake_cuda() as cuda, bfloat16_matmul():
        query, positives = cuda.tensor(given.query).half(), cuda.tensor(given.positives).half()
        assert_is_a_number_on_the_gpu(cacr(query, positives, Negatives(cuda.tensor(keys))))


def test_the_measures_of_two_views_are_not_read() -> None:
    x, y = torch.randn(2, 9, 3)
    with fake_cuda() as cuda:
        assert_is_a_number_on_the_gpu(alignment(cuda.tensor(x), cuda.tensor(y)))
        assert_is_a_number_on_the_gpu(uniformity(cuda.tensor(x)))
