"""The reductions by themselves, on a tile that is made by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.losses.reductions import KeyReduction, Softmax, Softplus, Tile

ROWS, COLUMNS = 3, 5
SHIFT = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
REDUCTIONS: dict[str, KeyReduction] = {
    "log-sum-exp": Softmax(1.5),
    "log-sum-exp of distances": Softmax(1.5, -0.7),
    "mean value": Softmax(1.5, -0.7, (-2.0, 1.0)),
    "softplus": Softplus(1.5, SHIFT),
}


def products(seed: int = 0) -> tuple[Tensor, Tensor]:
    """G (r, c) and |k|^2 (c,), with gradient."""
    generator = torch.Generator().manual_seed(seed)
    g, norms = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((ROWS, COLUMNS), COLUMNS))
    return g.requires_grad_(), norms.square().requires_grad_()


def tile(g: Tensor, norms: Tensor) -> Tile:
    """The last key does not count for the first query."""

    def mask(scores: Tensor) -> None:
        scores[0, -1] = -torch.inf

    return Tile(slice(0, ROWS), g.detach().clone(), lambda: torch.empty_like(g), norms.detach(), mask)


def results(reduction: KeyReduction, g: Tensor, norms: Tensor) -> list[Tensor]:
    """The formulas as they are written."""
    counts = torch.ones(ROWS, COLUMNS, dtype=torch.bool)
    counts[0, -1] = False
    if isinstance(reduction, Softplus):
        scores = reduction.alpha * g + reduction.shift[:, None]
        return [torch.where(counts, scores.exp().log1p(), 0.0).sum(1)]
    scores = (reduction.alpha * g + reduction.beta * norms).masked_fill(~counts, -torch.inf)
    a, b = reduction.value or (0.0, 0.0)
    return [scores.logsumexp(1), (scores.softmax(1) * (a * g + b * norms)).sum(1)]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_two_tiles_add_up_to_the_formula(name: str) -> None:
    reduction, (g, norms) = REDUCTIONS[name], products()
    state = reduction.start(ROWS, g.detach())
    reduction.absorb(state, tile(g, norms))
    once = results(reduction, g, norms)
    torch.testing.assert_close(list(reduction.finish(state))[: len(once)], [each.detach() for each in once])
    reduction.absorb(state, tile(g, norms))
    twice = [2 * once[0] if isinstance(reduction, Softplus) else once[0] + torch.log(torch.tensor(2.0)), *once[1:]]
    torch.testing.assert_close(list(reduction.finish(state))[: len(once)], [each.detach() for each in twice])


@pytest.mark.parametrize("name", REDUCTIONS)
def test_weights_times_coefficients_are_the_slope(name: str) -> None:
    reduction, (g, norms) = REDUCTIONS[name], products()
    upstream = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, -1.1]], dtype=torch.float64)
    formulas = results(reduction, g, norms)
    loss = sum(((u * each).sum() for u, each in zip(upstream, formulas, strict=False)), torch.zeros(()))
    by_g, by_norm = torch.autograd.grad(loss, [g, norms], allow_unused=True, materialize_grads=True)
    state = reduction.start(ROWS, g.detach())
    reduction.absorb(state, tile(g, norms))
    found = reduction.finish(state)
    weights = reduction.weights(tile(g, norms), found)
    slope = reduction.coefficients(found, (upstream[0], upstream[1]))
    torch.testing.assert_close(summed(weights, slope.by_dot), by_g)
    if reduction.uses_norms:
        torch.testing.assert_close(summed(weights, slope.by_norm).sum(0), by_norm)


def summed(weights: list[Tensor], coefficients: list[Tensor]) -> Tensor:
    return torch.stack([w * c[:, None] for w, c in zip(weights, coefficients, strict=True)]).sum(0)
