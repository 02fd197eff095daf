"""The engine's short cut where the keys are the queries: scores are symmetric, so each pair is multiplied once.

Two cases share the code. A batch against itself: tiles on and above the diagonal. Two halves against one another (two
views, image and text): tiles between the halves, which gives both directions in one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyview.losses.id_mask import IdMask
from manyview.losses.reductions import LOWEST, Pair, Softmax, Tile
from manyview.losses.tiles import Buffers, add_product, exact, multiply, steps, tile_entries

# Scores no larger than this need no running maximum: sums of their exponentials neither overflow nor underflow, nor do
# their inverses, multiplied with a loss scale of mixed precision.
_SAFE = {torch.float32: 60.0, torch.float64: 600.0}


class SymmetricTiles:
    """The tiles of x (N, d) against itself; `half` is where the second half starts, None for a whole batch."""

    def __init__(self, x: Tensor, half: int | None, id_mask: IdMask | None, dtype: torch.dtype | None) -> None:
        self.id_mask, self.dtype, self.buffers = id_mask, dtype, Buffers()
        side = int(tile_entries(x) ** 0.5)
        first = steps(0, len(x) if half is None else half, side)
        if half is None:
            self.spans = [(a, b) for i, a in enumerate(first) for b in first[i:]]
        else:
            self.spans = [(a, b) for a in first for b in steps(half, len(x), side)]

    def tile(self, x: Tensor, norms: Tensor | None, a: slice, b: slice) -> Tile:
        """Rows a against rows b, with the norms of both ends so that scores are symmetric."""
        shape = len(x[a]), len(x[b])
        g = multiply(x[a], x[b].T, self.buffers.get(0, shape, x), self.dtype)
        both = None if norms is None else torch.add(norms[a, None], norms[b], out=self.buffers.get(2, shape, x))
        return Tile(a, g, lambda: self.buffers.get(1, shape, x), both, lambda scores: self._mask(scores, a, b))

    def _mask(self, scores: Tensor, a: slice, b: slice) -> None:
        if self.id_mask is not None:
            self.id_mask.fill(scores, a, b)


class SymmetricFunction(torch.autograd.Function):
    """Computes log-sum-exp and mean value for every row of x; see `Softmax`."""

    @staticmethod
    @exact
    def forward(ctx: Any, x: Tensor, tiles: SymmetricTiles, reduction: Softmax) -> Pair:
        norms = x.square().sum(-1) if reduction.uses_norms else None
        safe = _small_scores(x, reduction)  # then one tile of exp(s) serves both ends
        state = reduction.start(len(x), x)
        kept: list[Tensor] = []
        if safe:
            state[0].zero_()
        for a, b in tiles.spans:
            scores, values = reduction.scores(tiles.tile(x, norms, a, b))
            if not safe:
                if a != b:
                    turned = scores.T.clone(), None if values is None else values.T.clone()
                    reduction.absorb_scores([s[b] for s in state], *turned)
                reduction.absorb_scores([s[a] for s in state], scores, values)
            else:
                p = scores.exp_()
                _add_to_both(state[1], p, a, b)
                if values is not None:
                    _add_to_both(state[2], values.mul_(p), a, b)
                if len(tiles.spans) == 1:  # a small problem keeps its one tile
                    kept = [p] if values is None or reduction.detach else [p, values]
        lse, mean = reduction.finish(state)  # of the symmetric scores
        tiles.buffers.free()
        ctx.save_for_backward(x, lse, mean, *kept)
        ctx.tiles, ctx.reduction, ctx.safe = tiles, reduction, safe
        if norms is None:
            return lse, mean
        return lse - norms * reduction.beta, mean - norms * (reduction.value[1] if reduction.value else 0.0)

    @staticmethod
    @exact
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, lse, mean, *kept = ctx.saved_tensors
        tiles, reduction, safe = ctx.tiles, ctx.reduction, ctx.safe
        norms = x.square().sum(-1) if reduction.uses_norms else None
        lse = lse.clamp_min(LOWEST)
        by_dot, by_norm = reduction.coefficients((lse, mean), (grads[0], grads[1]))
        if safe:  # weights are exp(s), and what makes them a softmax goes to the coefficients
            rest = lse.neg().exp_().masked_fill_(lse == LOWEST, 0)  # 0: a query that has its keys elsewhere
            by_dot, by_norm = [c * rest for c in by_dot], [c * rest for c in by_norm]
        grad, norm_grad = torch.zeros_like(x), torch.zeros_like(lse)
        for a, b in tiles.spans:
            down, up = kept, kept
            if not kept:
                down, up = _weights(tiles.tile(x, norms, a, b), b, reduction, None if safe else lse)
            slope = tiles.buffers.get(2, down[0].shape, x)
            spare = tiles.buffers.get(3, down[0].shape, x) if len(down) > 1 else slope
            _slope(down, up, [(c[a, None], c[b]) for c in by_dot], slope, spare)
            add_product(grad[a], slope, x[b], tiles.dtype)
            if a != b:
                add_product(grad[b], slope.T, x[a], tiles.dtype)
            if norms is not None:
                norm_grad[b] += sum(w.T @ c[a] for w, c in zip(down, by_norm, strict=True))
                if a != b:
                    norm_grad[a] += sum(w @ c[b] for w, c in zip(up, by_norm, strict=True))
        tiles.buffers.free()
        if norms is not None:
            grad += x * (2 * norm_grad[:, None])
        return grad, None, None


def _weights(tile: Tile, cols: slice, reduction: Softmax, lse: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of a tile's pairs for its rows and for its columns; without lse they are the same, exp(s)."""
    scores, values = reduction.scores(tile)
    if lse is None:
        both = reduction.weights_of(scores.exp_(), values)
        return both, both
    up = reduction.weights_of((scores - lse[cols]).exp_(), None if values is None else values.clone())
    return reduction.weights_of(scores.sub_(lse[tile.rows, None]).exp_(), values), up


def _slope(down: list[Tensor], up: list[Tensor], coefficients: list[Pair], out: Tensor, spare: Tensor) -> None:
    """The sum of both ends' slopes: weights times coefficients, of the rows (r, 1) and of the columns (c,)."""
    for i, (rows, cols, (by_row, by_col)) in enumerate(zip(down, up, coefficients, strict=True)):
        term = spare if i else out
        if rows is cols:
            torch.add(by_row, by_col, out=term).mul_(rows)
        else:
            torch.mul(rows, by_row, out=term).addcmul_(cols, by_col)
        if i:
            out += term


def _add_to_both(sums: Tensor, tile: Tensor, a: slice, b: slice) -> None:
    sums[a] += tile.sum(1)
    if a != b:
        sums[b] += tile.sum(0)


def _small_scores(x: Tensor, reduction: Softmax) -> bool:
    """Says whether all symmetric scores are small, by Cauchy-Schwarz; False on a GPU, which would have to be waited
    for."""
    if x.device.type != "cpu":
        return False
    longest = float(torch.linalg.vector_norm(x, dim=-1).max()) if len(x) else 0.0
    return (abs(reduction.alpha) + 2 * abs(reduction.beta)) * longest**2 <= _SAFE[x.dtype]
