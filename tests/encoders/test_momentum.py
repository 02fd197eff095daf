from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from manyview.core import rng
from manyview.core.distributed import gather, rank, world_size
from manyview.encoders import split_batch_norm
from manyview.encoders.momentum import average_, constant, cosine, shuffled
from tests.golden import golden
from tests.two_processes import Found, in_processes

IMAGES, GROUPS, STEPS, FLAT = 256, 8, 40, 1e6


def test_averaging_is_the_formula_in_float64() -> None:
    torch.manual_seed(0)
    shapes = [(3, 4), (5,), (), (2, 3, 1, 1)]
    keys, queries = ([torch.randn(shape, dtype=torch.float64) for shape in shapes] for _ in range(2))
    expected = [0.9 * key + (1 - 0.9) * query for key, query in zip(keys, queries, strict=True)]
    before = [query.clone() for query in queries]
    average_(keys, queries, 0.9)
    for key, wanted in zip(keys, expected, strict=True):
        torch.testing.assert_close(key, wanted, rtol=1e-14, atol=1e-15)
    assert all(torch.equal(a, b) for a, b in zip(queries, before, strict=True))


def test_momentum_one_keeps_and_zero_copies() -> None:
    key, query = torch.randn(5), torch.randn(5)
    start = key.clone()
    average_([key], [query], 1.0)
    assert torch.equal(key, start)
    average_([key], [query], 0.0)
    assert torch.equal(key, query)


def test_cosine_goes_from_start_to_one() -> None:
    assert cosine(0, 100, start=0.99) == pytest.approx(0.99, abs=1e-15)
    assert cosine(50, 100, start=0.99) == pytest.approx(0.995, abs=1e-15)
    assert cosine(100, 100, start=0.99) == 1.0


def test_cosine_gives_the_published_numbers() -> None:
    epochs, momenta = golden("schedules/mocov3/epochs"), golden("schedules/mocov3/momentum")
    for epoch, momentum in zip(epochs.tolist(), momenta.tolist(), strict=True):
        assert cosine(epoch, 100, start=0.99) == pytest.approx(momentum, abs=1e-14)


def test_constant_is_constant() -> None:
    assert {constant(step, 10, start=0.999) for step in range(10)} == {0.999}


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_a_momentum_outside_its_range_is_refused(momentum: float) -> None:
    for call in (constant, cosine):
        with pytest.raises(ValueError, match="start: expected a number from 0 to 1"):
            call(0, 10, start=momentum)


@pytest.mark.parametrize(("step", "total"), [(-1, 10), (11, 10), (0, 0)])
def test_a_step_outside_the_run_is_refused(step: int, total: int) -> None:
    with pytest.raises(ValueError, match="step and total"):
        cosine(step, total)


def correlation(shuffle: Callable[[Callable[[Tensor], Tensor], Tensor, int], Tensor]) -> float:
    """How much the mean of a query's group tells of the mean of its key's group: their correlation over a batch.

    Means are read off a split batch norm whose epsilon hides the variance. The mean over some steps.
    """
    norm = split_batch_norm(nn.BatchNorm1d(1, eps=FLAT, affine=False), GROUPS).double()

    def means(x: Tensor) -> Tensor:
        return x - norm(x) * FLAT**0.5

    found = []
    for step in range(STEPS):
        drawn = torch.randn(IMAGES, 1, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        mine = drawn.tensor_split(world_size())[rank()]
        both = torch.cat([gather(means(mine)), gather(shuffle(means, mine, step))], 1)
        found.append(torch.corrcoef(both.T)[0, 1])
    return float(torch.stack(found).mean())


def among_all(means: Callable[[Tensor], Tensor], x: Tensor, step: int) -> Tensor:
    return shuffled(lambda rows: {"means": means(rows)}, x, seed=0, step=step)["means"]


def within_its_process(means: Callable[[Tensor], Tensor], x: Tensor, step: int) -> Tensor:
    there = rng.order(rng.key(0, step, torch.arange(len(x))))
    return means(x[there])[there.argsort()]


def measured(number: int) -> Found:
    return {"all": correlation(among_all), "own": correlation(within_its_process)}


def test_the_group_of_a_query_does_not_tell_that_of_its_key(tmp_path: Path) -> None:
    found = in_processes(4, measured, tmp_path)[0]
    assert found["own"] > 0.3  # what shuffling within each process would leave
    assert abs(found["all"]) < 0.1
    assert found["all"] == pytest.approx(correlation(among_all), abs=1e-6)  # as in one process
