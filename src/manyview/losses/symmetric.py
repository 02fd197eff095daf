"""The engine's short cut where the keys are the queries: each pair is multiplied once and serves both its ends.

Two cases share the code. A batch against itself: tiles on and above the diagonal. Two halves against one another (two
views, image and text): tiles between the halves, which gives both directions in one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from manyview.losses.id_mask import Exclusion
from manyview.losses.reductions import LOWEST, Pair, Softmax, Tile
from manyview.losses.tiles import Buffers, add_product, exact, multiply, steps, tile_entries

# Scores no larger than this need no running maximum: sums of their exponentials neither overflow nor underflow, nor do
# their inverses, multiplied with a loss scale of mixed precision.
_SAFE = {torch.float32: 60.0, torch.float64: 600.0}


class Mirror:
    """The tiles of x (N, d) against itself; `half` is where the second half starts, None for a whole batch."""

    def __init__(self, x: Tensor, half: int | None, exclusion: Exclusion | None, dtype: torch.dtype | None) -> None:
        self.exclusion, self.dtype, self.buffers = exclusion, dtype, Buffers()
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
        return Tile(a, g, lambda: self.buffers.get(1, shape, x), both, lambda scores: self._fill(scores, a, b))

    def _fill(self, scores: Tensor, a: slice, b: slice) -> None:
        if self.exclusion is not None:
            self.exclusion.fill(scores, a, b)


class MirrorFunction(torch.autograd.Function):
    """Log-sum-exp and mean value for every row of x; see `Softmax`."""

    @staticmethod
    @exact
    def forward(ctx: Any, x: Tensor, pairs: Mirror, form: Softmax) -> Pair:
        norms = x.square().sum(-1) if form.uses_norms else None
        safe = _safe(x, form)  # then one tile of exp(s) serves both ends
        state = form.start(len(x), x)
        kept: list[Tensor] = []
        if safe:
            state[0].zero_()
        for a, b in pairs.spans:
            scores, values = form.scores(pairs.tile(x, norms, a, b))
            if not safe:
                if a != b:
                    turned = scores.T.clone(), None if values is None else values.T.clone()
                    form.absorb_scores([s[b] for s in state], *turned)
                form.absorb_scores([s[a] for s in state], scores, values)
            else:
                p = scores.exp_()
                _add_to_both(state[1], p, a, b)
                if values is not None:
                    _add_to_both(state[2], values.mul_(p), a, b)
                if len(pairs.spans) == 1:  # a small problem keeps its one tile
                    kept = [p] if values is None or form.detach else [p, values]
        lse, mean = form.finish(state)  # of the symmetric scores
        pairs.buffers.free()
        ctx.save_for_backward(x, lse, mean, *kept)
        ctx.pairs, ctx.form, ctx.safe = pairs, form, safe
        if norms is None:
            return lse, mean
        return lse - norms * form.beta, mean - norms * (form.value[1] if form.value else 0.0)

    @staticmethod
    @exact
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        x, lse, mean, *kept = ctx.saved_tensors
        pairs, form, safe = ctx.pairs, ctx.form, ctx.safe
        norms = x.square().sum(-1) if form.uses_norms else None
        lse = lse.clamp_min(LOWEST)
        by_dot, by_norm = form.coefficients((lse, mean), (grads[0], grads[1]))
        if safe:  # weights are exp(s), and what makes them a softmax goes to the coefficients
            rest = lse.neg().exp_().masked_fill_(lse == LOWEST, 0)  # 0: a query that has its keys elsewhere
            by_dot, by_norm = [c * rest for c in by_dot], [c * rest for c in by_norm]
        grad, norm_grad = torch.zeros_like(x), torch.zeros_like(lse)
        for a, b in pairs.spans:
            down, up = (kept, kept) if kept else _weights(pairs.tile(x, norms, a, b), b, form, None if safe else lse)
            slope = pairs.buffers.get(2, down[0].shape, x)
            spare = pairs.buffers.get(3, down[0].shape, x) if len(down) > 1 else slope
            _slope(down, up, [(c[a, None], c[b]) for c in by_dot], slope, spare)
            add_product(grad[a], slope, x[b], pairs.dtype)
            if a != b:
                add_product(grad[b], slope.T, x[a], pairs.dtype)
            if norms is not None:
                norm_grad[b] += sum(w.T @ c[a] for w, c in zip(down, by_norm, strict=True))
                if a != b:
                    norm_grad[a] += sum(w @ c[b] for w, c in zip(up, by_norm, strict=True))
        pairs.buffers.free()
        if norms is not None:
            grad += x * (2 * norm_grad[:, None])
        return grad, None, None


def _weights(tile: Tile, cols: slice, form: Softmax, lse: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of a tile's pairs for its rows and for its columns; without lse they are the same, exp(s)."""
    scores, values = form.scores(tile)
    if lse is None:
        both = form.weights_of(scores.exp_(), values)
        return both, both
    up = form.weights_of((scores - lse[cols]).exp_(), None if values is None else values.clone())
    return form.weights_of(scores.sub_(lse[tile.rows, None]).exp_(), values), up


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


def _safe(x: Tensor, form: Softmax) -> bool:
    """Whether all symmetric scores are small, by Cauchy-Schwarz."""
    longest = float(torch.linalg.vector_norm(x, dim=-1).max()) if len(x) else 0.0
    return (abs(form.alpha) + 2 * abs(form.beta)) * longest**2 <= _SAFE[x.dtype]
