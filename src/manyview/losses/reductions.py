"""Reductions over the keys: two formulas of a pair's inner product that the engine sums, and their slopes.

A reduction sees a tile of inner products G = <q, k> (and of |k|^2 where it uses them), never how the tile came about,
and may write over it. Both have the same steps: `absorb` adds a tile to the running sums of its queries, `finish` turns
these into two results per query, `weights` makes the pairs' final weights x (and y) again, and `coefficients` says what
they count in the derivative of the results,

    by G:      x u + y w
    by |k|^2:  x U + y W        u, w, U, W: one number per query

so that gradients need nothing but products of weights with vectors. |q|^2 is no business of a reduction: in s and
v it is a constant of the query, which `Stream` adds to the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Pair = tuple[Tensor, Tensor]

LOWEST = -1e30  # where running maxima start: below any score, yet finite, so that differences stay defined


class Slope(NamedTuple):
    """The factors of the weights in a pair's derivative: lists of (N,), as long as that of the weights."""

    by_dot: list[Tensor]
    by_norm: list[Tensor]


class Tile(NamedTuple):
    """The inner products of some queries with some keys."""

    rows: slice  # which queries
    g: Tensor  # (r, c)
    scratch: Callable[[], Tensor]  # gives memory for another tile of that shape
    norms: Tensor | None  # |k|^2, (c,) or (r, c), where the reduction uses them
    mask: Callable[[Tensor], None]  # sets the pairs that do not count to -inf, in place


@dataclass(frozen=True)
class Softmax:
    """log sum exp(s) and sum softmax(s) v, with s = alpha G + beta |k|^2 and, if asked for, v = a G + b |k|^2.

    Weights are p = softmax(s) and p v. With `detach`, no gradient passes through the softmax of the mean.
    """

    alpha: float
    beta: float = 0.0
    value: tuple[float, float] | None = None
    detach: bool = False

    @property
    def uses_norms(self) -> bool:
        return self.beta != 0 or (self.value is not None and self.value[1] != 0)

    def start(self, queries: int, like: Tensor) -> list[Tensor]:
        """The running maximum, sum of exp and sum of exp times value, (N,) each."""
        top = like.new_full((queries,), LOWEST)
        return [top, torch.zeros_like(top), torch.zeros_like(top)]

    def scores(self, tile: Tile) -> tuple[Tensor, Tensor | None]:
        """Gives s, in place of G, and v."""
        values = None
        if self.value is not None:
            values = _add_norms(torch.mul(tile.g, self.value[0], out=tile.scratch()), tile.norms, self.value[1])
        scores = _add_norms(tile.g.mul_(self.alpha), tile.norms, self.beta)
        tile.mask(scores)
        return scores, values

    def absorb(self, state: list[Tensor], tile: Tile) -> tuple[Tensor | None, list[Tensor]]:
        """Adds a tile. Gives the factor by which sums of keys so far must shrink, if any, and the tile's weights."""
        return self.absorb_scores([s[tile.rows] for s in state], *self.scores(tile))

    def absorb_scores(self, state: list[Tensor], scores: Tensor, values: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        top, total, weighted = state
        new = torch.maximum(top, scores.amax(-1))
        scale = (top - new).exp_()
        top.copy_(new)
        p = scores.sub_(new[:, None]).exp_()
        total.mul_(scale).add_(p.sum(-1))
        if values is None:
            return scale, [p]
        values.mul_(p)
        weighted.mul_(scale).add_(values.sum(-1))
        return scale, [p] if self.detach else [p, values]

    def finish(self, state: list[Tensor]) -> Pair:
        """Log-sum-exp and mean; -inf and 0 for a query without a key that counts."""
        top, total, weighted = state
        return total.log() + top, weighted if self.value is None else weighted / _positive(total)

    def normalise(self, sums: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Turns sums of keys (N, d) under the weights of `absorb` into sums under the final weights."""
        return [each / _positive(state[1])[:, None] for each in sums]

    def weights(self, tile: Tile, results: Pair) -> list[Tensor]:
        scores, values = self.scores(tile)
        lse = results[0][tile.rows].clamp_min(LOWEST)  # a query without keys: exp(-inf - finite) = 0
        return self.weights_of(scores.sub_(lse[:, None]).exp_(), values)

    def weights_of(self, p: Tensor, values: Tensor | None) -> list[Tensor]:
        return [p] if values is None or self.detach else [p, values.mul_(p)]

    def coefficients(self, results: Pair, grads: Pair) -> Slope:
        """The slope, from d lse = sum p ds and d mean = sum p (v - mean) ds + p dv."""
        (_, mean), (grad_lse, grad_mean) = results, grads
        if self.value is None:
            return Slope([self.alpha * grad_lse], [self.beta * grad_lse] if self.beta else [])
        a, b = self.value
        if self.detach:
            return Slope([self.alpha * grad_lse + a * grad_mean], [self.beta * grad_lse + b * grad_mean])
        by_s = grad_lse - grad_mean * mean
        return Slope(
            [self.alpha * by_s + a * grad_mean, self.alpha * grad_mean],
            [self.beta * by_s + b * grad_mean, self.beta * grad_mean],
        )


@dataclass(frozen=True)
class Softplus:
    """The sum of softplus(alpha G + shift), the shift one number per query. The weight of a pair is the sigmoid."""

    alpha: float
    shift: Tensor  # (N,)

    uses_norms = False

    def start(self, queries: int, like: Tensor) -> list[Tensor]:
        return [like.new_zeros(queries)]

    def scores(self, tile: Tile) -> Tensor:
        scores = tile.g.mul_(self.alpha).add_(self.shift[tile.rows, None])
        tile.mask(scores)
        return scores

    def absorb(self, state: list[Tensor], tile: Tile) -> tuple[Tensor | None, list[Tensor]]:
        scores = self.scores(tile)
        state[0][tile.rows] += F.softplus(scores, threshold=40).sum(-1)
        return None, [scores.sigmoid_()]

    def finish(self, state: list[Tensor]) -> Pair:
        return state[0], torch.zeros_like(state[0])

    def normalise(self, sums: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        return sums

    def weights(self, tile: Tile, results: Pair) -> list[Tensor]:
        return [self.scores(tile).sigmoid_()]

    def coefficients(self, results: Pair, grads: Pair) -> Slope:
        return Slope([self.alpha * grads[0]], [])


KeyReduction = Softmax | Softplus


def _add_norms(x: Tensor, norms: Tensor | None, factor: float) -> Tensor:
    return x if norms is None or not factor else x.add_(norms, alpha=factor)


def _positive(total: Tensor) -> Tensor:
    return total.clamp_min(torch.finfo(total.dtype).tiny)
