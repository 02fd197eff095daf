"""MINE on Gaussians, whose mutual information is known: -ln(1 - rho^2) / 2 nats."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.diagnose.mine import mine


def gaussians(rho: float, count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, noise = (torch.randn(count, 1, generator=generator) for _ in range(2))
    return 5 * x + 2, rho * x + math.sqrt(1 - rho**2) * noise


def assert_known(rho: float, count: int, steps: int) -> None:
    found = mine(*gaussians(rho, count), steps=steps)
    assert found == pytest.approx(-0.5 * math.log(1 - rho**2), abs=0.1)


def test_it_is_that_of_gaussians_within_a_tenth_of_a_nat() -> None:
    assert_known(0.8, 2000, 500)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.5, 0.8, 0.9])
def test_it_is_that_of_gaussians_from_none_to_much(rho: float) -> None:
    assert_known(rho, 4000, 2000)


def test_what_is_learnt_by_heart_does_not_count() -> None:
    """Views of many numbers and few samples, which share nothing: a bound of what was learnt from would be large."""
    first, second = (torch.randn(100, 30, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert mine(first, second, steps=200) < 0.1


def test_it_draws_nothing_from_anyone_elses_random_numbers() -> None:
    before = torch.get_rng_state()
    first, second = gaussians(0.5, 100)
    assert mine(first, second, steps=5) == mine(first, second, steps=5)
    assert torch.equal(torch.get_rng_state(), before)


def test_bad_views_are_one_line() -> None:
    with pytest.raises(UserError, match="views: expected 64 samples or more of both, got 70 and 60"):
        mine(torch.randn(70, 2), torch.randn(60, 2))
    with pytest.raises(UserError, match="second: expected finite numbers"):
        mine(torch.randn(70, 2), torch.full((70, 2), math.nan))
