"""The engine under every loss: sums over all negatives, exactly, without ever holding the N x M matrix.

Tiles of the score matrix are made, summed and dropped. The backward pass makes them again; where the keys carry no
gradient (a queue, a bank) the query's gradient is gathered on the way forward instead. Memory is linear in N and in M.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Source
from manyview.losses.checks import at_least_float32, check_negatives, number
from manyview.losses.id_mask import IdMask
from manyview.losses.reductions import KeyReduction, Pair, Softmax, Softplus, Tile
from manyview.losses.symmetric import SymmetricFunction, SymmetricTiles
from manyview.losses.tiles import Span, Tiles, exact, steps, tiles_for

_matmul_dtype: ContextVar[torch.dtype | None] = ContextVar("matmul_dtype", default=None)


@contextmanager
def bfloat16_matmul() -> Iterator[None]:
    """Losses inside multiply in bfloat16 and sum in float32: faster, and good to about two digits.

    Refused below a temperature of 0.05, where rounding a similarity moves the loss visibly.
    """
    token = _matmul_dtype.set(torch.bfloat16)
    try:
        yield
    finally:
        _matmul_dtype.reset(token)


class SoftmaxResult(NamedTuple):
    """The softmax over the negatives that count, as one number per query each."""

    log_sum_exp: Tensor  # (N,)
    mean: Tensor  # (N,)  sum softmax(s) v; zeros where no value was asked for


class Stream:
    """Queries (N, d) and their negatives, made ready to be summed over.

    Scores are s = alpha <q, k> + beta (|q|^2 + |k|^2), values v = a <q, k> + b (|q|^2 + |k|^2) with value = (a, b): so
    (2t, -t) is -t |q - k|^2 and (-2, 1) is |q - k|^2.

    >>> stream = Stream(query, negatives)
    >>> stream.softmax(1 / temperature).log_sum_exp   # (N,)
    """

    def __init__(self, query: Tensor, negatives: Negatives) -> None:
        check_negatives(query, negatives)
        self.query = at_least_float32(query)
        self.parts = [_SourceSums(query, source) for source in negatives.sources]
        if len(query) and self._can_lack_negatives() and not self.count.min() > 0:
            row = int((self.count <= 0).nonzero()[0])
            raise UserError(
                "negatives",
                f"none is left for query {row} of query {tuple(query.shape)} against {negatives}: there is "
                "no key, or all carry the query's id. Give two images or more, and ids that differ between images.",
            )

    def _can_lack_negatives(self) -> bool:
        """Says whether a query may have none. Not asked where a GPU would have to be waited for: where it has ids."""
        unknown = self.query.device.type != "cpu" and any(part.source.query_ids is not None for part in self.parts)
        return not unknown and not any(part.leaves_negatives for part in self.parts)

    @cached_property
    def count(self) -> Tensor:
        """The number of negatives that each query has, by weight, (N,)."""
        counts = [part.count if part.source.weight == 1 else part.count * part.source.weight for part in self.parts]
        return counts[0] if len(counts) == 1 else torch.stack(counts).sum(0)

    def softmax(
        self,
        alpha: float | Tensor,
        beta: float = 0.0,
        *,
        value: tuple[float, float] | None = None,
        detach: bool = False,
    ) -> SoftmaxResult:
        """The log-sum-exp of s, and the mean of v under softmax(s); `detach` stops the gradient through the softmax.

        alpha may be a tensor that learns, for scores without norms and values.
        """
        if isinstance(alpha, Tensor) and (beta or value):
            raise UserError("alpha", "a tensor goes with beta = 0 and without values only")
        results = [part.sums(self.query, Softmax(1.0, beta, value, detach), alpha) for part in self.parts]
        weights = [math.log(part.source.weight) for part in self.parts]
        log_sum_exp, mean = results[0]
        if weights != [0.0]:
            each = torch.stack([lse + weight for (lse, _), weight in zip(results, weights, strict=True)])
            share = each.softmax(0)
            mean = torch.stack([m for _, m in results]).mul(share.detach() if detach else share).sum(0)
            log_sum_exp = each.logsumexp(0)
        if beta or (value and value[1]):
            norms = self.query.square().sum(-1)
            return SoftmaxResult(log_sum_exp + beta * norms, mean + (value[1] if value else 0.0) * norms)
        return SoftmaxResult(log_sum_exp, mean)

    def softplus(self, alpha: float | Tensor, shift: Tensor) -> Tensor:
        """The sum over the negatives of softplus(alpha <q, k> + shift), the shift (N,) without gradient."""
        reduction = Softplus(1.0, shift.detach().to(self.query.dtype))
        sums = [part.sums(self.query, reduction, alpha)[0] * part.source.weight for part in self.parts]
        return torch.stack(sums).sum(0)


class _SourceSums:
    """The sums over one source, for all of which the pairs that do not count are found once."""

    def __init__(self, query: Tensor, source: Source) -> None:
        self.source = source
        self.width = source.keys.shape[-2] if source.index is None else source.index.shape[1]
        whole = source.keys is query and source.index is None
        if whole and source.key_ids is None and source.split is None:
            raise UserError("negatives", "the keys are the queries; give ids, or each query is its own negative")
        self.symmetric = whole and _same(source.key_ids, source.query_ids)
        self.id_mask: IdMask | None = None
        self.halves: list[tuple[slice, _SourceSums]] = []
        if source.split is not None:
            self._split(query, source.split)
        elif source.index is None and source.keys.dim() == 2 and source.key_ids is not None:
            assert source.query_ids is not None
            self.id_mask = IdMask(source.query_ids, source.key_ids)
        self.queries, self.dtype = len(query), torch.promote_types(query.dtype, torch.float32)

    @property
    def leaves_negatives(self) -> bool:
        """Says whether every query certainly has a negative here, as far as a glance tells."""
        if self.halves:
            return all(half.leaves_negatives for _, half in self.halves if half.queries)
        if self.id_mask is not None:
            return self.id_mask.leaves_negatives
        return self.source.query_ids is None and self.width > 0

    def _split(self, query: Tensor, split: tuple[int, int]) -> None:
        at, key_at = split
        for rows, cols in ((slice(0, at), slice(key_at, None)), (slice(at, None), slice(0, key_at))):
            ids = self.source.key_ids, self.source.query_ids
            half = Source(
                self.source.keys[cols],
                key_ids=None if ids[0] is None else ids[0][cols],
                query_ids=None if ids[1] is None else ids[1][rows],
            )
            self.halves.append((rows, _SourceSums(query[rows], half)))
        self.symmetric = self.symmetric and at == key_at
        if self.symmetric and self.source.key_ids is not None:
            self.id_mask = IdMask(self.source.key_ids, self.source.key_ids)

    @cached_property
    def count(self) -> Tensor:
        """The number of keys that count for each query, (N,)."""
        if self.halves:
            return torch.cat([half.count for _, half in self.halves])
        source = self.source
        count = torch.full((self.queries,), self.width, dtype=self.dtype, device=source.keys.device)
        if self.id_mask is not None:
            return count - self.id_mask.count
        if source.key_ids is not None and source.query_ids is not None:
            for rows in steps(0, self.queries, 64):  # not at once: key_ids[index] is as large as the index
                met = source.key_ids[rows] if source.index is None else source.key_ids[source.index[rows]]
                count[rows] -= (met == source.query_ids[rows, None]).sum(1)
        return count

    def sums(self, query: Tensor, reduction: KeyReduction, alpha: float | Tensor) -> Pair:
        symmetric = self.symmetric and isinstance(reduction, Softmax)
        if self.halves and not symmetric:
            parts = [half.sums(query[rows], _of_rows(reduction, rows), alpha) for rows, half in self.halves]
            return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
        dtype = _matmul_dtype_for(alpha)
        if isinstance(alpha, Tensor):  # a learnt scale goes into the vectors, so that autograd sees it
            query = query * (alpha.sqrt() if symmetric else alpha)
        else:
            reduction = replace(reduction, alpha=alpha)
        if symmetric:
            half = None if self.source.split is None else self.source.split[0]
            both_ends = SymmetricTiles(query, half, self.id_mask, dtype)
            return cast(Pair, SymmetricFunction.apply(query, both_ends, reduction))
        tiles = tiles_for(query, self.source, self.id_mask, dtype)
        forward_only = torch.is_grad_enabled() and query.requires_grad and not self.source.keys.requires_grad
        return cast(Pair, StreamFunction.apply(query, self.source.keys, tiles, reduction, forward_only))


class StreamFunction(torch.autograd.Function):
    """Computes a reduction's two results per query, summed over the keys tile by tile."""

    @staticmethod
    @exact
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, tiles: Tiles, reduction: KeyReduction, forward_only: bool
    ) -> Pair:
        state = reduction.start(len(query), query)
        sums: list[Tensor] = []  # keys under the weights so far, for the query's gradient
        for span in tiles.spans():
            taken = tiles.take(*span)
            scale, weights = reduction.absorb(state, _tile(tiles, reduction, query, taken, span))
            if forward_only:
                sums = sums or [torch.zeros_like(query) for _ in weights]
                for total, weight in zip(sums, weights, strict=True):
                    if scale is not None:
                        total[span[0]] *= scale[:, None]
                    tiles.weigh(weight, taken, total[span[0]])
        tiles.buffers.free()
        results = reduction.finish(state)
        if forward_only:
            ctx.save_for_backward(*results, *reduction.normalise(sums, state))
        else:
            ctx.save_for_backward(*results, query, keys)
            ctx.tiles = tiles
        ctx.reduction, ctx.forward_only = reduction, forward_only
        return results

    @staticmethod
    @exact
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        reduction: KeyReduction = ctx.reduction
        lse, mean, *saved = ctx.saved_tensors
        by_dot, by_norm = reduction.coefficients((lse, mean), (grads[0], grads[1]))
        if ctx.forward_only:
            parts = [total * c[:, None] for total, c in zip(saved, by_dot, strict=False)]
            return (torch.stack(parts).sum(0) if parts else None), None, None, None, None
        (query, keys), tiles = saved, ctx.tiles
        by_query = torch.zeros_like(query) if ctx.needs_input_grad[0] else None
        by_keys = query.new_zeros(keys.shape) if ctx.needs_input_grad[1] else None
        for span in tiles.spans():
            taken, rows = tiles.take(*span), span[0]
            weights = reduction.weights(_tile(tiles, reduction, query, taken, span), (lse, mean))
            slope = _combine(weights, by_dot, rows)
            if by_query is not None:
                tiles.weigh(slope, taken, by_query[rows])
            if by_keys is not None:
                norm_slope = _combine(weights, by_norm, rows) if reduction.uses_norms else None
                tiles.spread(slope, norm_slope, query[rows], taken, by_keys, span)
        tiles.buffers.free()
        return by_query, None if by_keys is None else by_keys.to(keys.dtype), None, None, None


def _tile(tiles: Tiles, reduction: KeyReduction, query: Tensor, taken: Tensor, span: Span) -> Tile:
    g = tiles.dot(query[span[0]], taken)
    norms = tiles.norms(taken) if reduction.uses_norms else None
    scratch = partial(tiles.buffers.get, 1, g.shape, g)
    return Tile(span[0], g, scratch, norms, partial(tiles.mask, span=span))


def _combine(weights: list[Tensor], coefficients: list[Tensor], rows: slice) -> Tensor:
    slope = weights[0] * coefficients[0][rows, None]
    for weight, coefficient in zip(weights[1:], coefficients[1:], strict=True):
        slope.addcmul_(weight, coefficient[rows, None])
    return slope


def _of_rows(reduction: KeyReduction, rows: slice) -> KeyReduction:
    return replace(reduction, shift=reduction.shift[rows]) if isinstance(reduction, Softplus) else reduction


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    """Says whether ids are equal; on a GPU, which would have to be waited for, whether they are one tensor."""
    return a is b or (a is not None and b is not None and a.device.type == "cpu" and torch.equal(a, b))


def _matmul_dtype_for(alpha: float | Tensor) -> torch.dtype | None:
    dtype = _matmul_dtype.get()
    if dtype is not None and (scale := abs(number(alpha))) > 20:
        raise UserError(
            "bfloat16_matmul",
            f"too coarse for similarities multiplied by {scale:.4g}; the most is 20, as with "
            "temperature = 0.05 or t = 10",
        )
    return dtype
