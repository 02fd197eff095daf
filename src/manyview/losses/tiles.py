"""Tiles of inner products, for each way in which keys can be given.

Every class offers the engine the same steps: `spans` walks the pairs; for each span `take` fetches what is needed of
the keys, `dot` multiplies, `weigh` sums keys by weights, `spread` gives keys their gradient, `mask` marks pairs that do
not count. Keys may be stored in half precision: they are widened a tile at a time. Tiles live in buffers that are used
again within a pass, since touching fresh memory costs more than filling it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from manyview.core.negatives import Source
from manyview.losses.id_mask import IdMask

TILE = 2**20  # entries: a few such float32 tiles stay in a processor's last cache
CUDA_TILE = 2**22
WHOLE_BANK = 32  # drawing more than one row in so many, multiplying the whole bank beats gathering the rows


class Buffers:
    """Memory for tiles, by number, allocated at the first use and let go by `free`."""

    def __init__(self) -> None:
        self._flat: dict[int, Tensor] = {}

    def free(self) -> None:
        self._flat.clear()

    def get(self, number: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        size = torch.Size(shape).numel()
        if number not in self._flat or self._flat[number].numel() < size:
            self._flat[number] = like.new_empty(size)
        return self._flat[number][:size].view(shape)


Span = tuple[slice, slice]


def tile_entries(like: Tensor) -> int:
    return CUDA_TILE if like.is_cuda else TILE


def steps(start: int, stop: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]


def multiply(a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The product a @ b, multiplied in `dtype` if one is given."""
    return torch.mm(a, b, out=out) if dtype is None else out.copy_(a.to(dtype) @ b.to(dtype))


def add_product(total: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> None:
    if dtype is None:
        total.addmm_(a, b)
    else:
        total += a.to(dtype) @ b.to(dtype)


Step = TypeVar("Step", bound=Callable[..., object])


def exact(step: Step) -> Step:
    """Decorates the forward and backward of a Function: neither autocast nor TF32, and no second derivative.

    Tiles that are made again carry no graph, so differentiating the backward would silently be wrong.
    """

    @wraps(step)
    def run(ctx: Any, first: Tensor, *rest: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("manyview's losses have no second derivative: call backward() without create_graph=True")
        device, precision = first.device.type, torch.get_float32_matmul_precision()
        if precision == "highest" and not torch.is_autocast_enabled(device):
            return step(ctx, first, *rest)
        try:
            torch.set_float32_matmul_precision("highest")
            with torch.autocast(device, enabled=False):
                return step(ctx, first, *rest)
        finally:
            torch.set_float32_matmul_precision(precision)

    return cast(Step, run)


class SharedKeys:
    """Keys (M, d) that all queries meet."""

    def __init__(self, query: Tensor, source: Source, id_mask: IdMask | None, dtype: torch.dtype | None) -> None:
        self.queries, self.wide, self.source = len(query), query.dtype, source
        self.id_mask, self.dtype = id_mask, dtype
        self.buffers = Buffers()
        rows = min(max(len(query), 1), 1024)
        self.shape = rows, max(tile_entries(query) // rows, 256)

    def spans(self) -> Iterator[tuple[slice, slice]]:
        """Slices of the queries, and of the keys that each of these queries meets."""
        for rows in steps(0, self.queries, self.shape[0]):
            for cols in steps(0, len(self.source.keys), self.shape[1]):
                yield rows, cols

    def take(self, rows: slice, cols: slice) -> Tensor:
        """Fetches keys (c, d)."""
        return self.source.keys.detach()[cols].to(self.wide)

    def dot(self, query: Tensor, taken: Tensor) -> Tensor:
        """The products <q, k>, (r, c)."""
        return multiply(query, taken.T, self.buffers.get(0, (len(query), len(taken)), query), self.dtype)

    def norms(self, taken: Tensor) -> Tensor:
        """The squares |k|^2, (c,) or (r, c)."""
        return taken.square().sum(-1)

    def weigh(self, weights: Tensor, taken: Tensor, total: Tensor) -> None:
        """Adds weights (r, c) times keys to total (r, d)."""
        add_product(total, weights, taken, self.dtype)

    def spread(
        self, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, taken: Tensor, total: Tensor, span: Span
    ) -> None:
        """Adds to the gradient of all keys."""
        add_product(total[span[1]], by_dot.T, query, self.dtype)
        if by_norm is not None:
            total[span[1]] += taken * (2 * by_norm.sum(0))[:, None]

    def mask(self, scores: Tensor, span: Span) -> None:
        if self.id_mask is not None:
            self.id_mask.fill(scores, *span)


class KeysPerQuery:
    """One set of keys per query: given as (N, M, d), or rows of a bank drawn by `index`, gathered a tile at a time."""

    def __init__(self, query: Tensor, source: Source) -> None:
        self.queries, self.wide, self.source = len(query), query.dtype, source
        self.buffers = Buffers()
        self.width = source.keys.shape[1] if source.index is None else source.index.shape[1]
        budget = max(tile_entries(query) // query.shape[1], 1)  # gathered vectors
        width = max(self.width, 1)
        self.shape = max(budget // width, 1), min(width, budget)

    def spans(self) -> Iterator[tuple[slice, slice]]:
        for rows in steps(0, self.queries, self.shape[0]):
            for cols in steps(0, self.width, self.shape[1]):
                yield rows, cols

    def take(self, rows: slice, cols: slice) -> Tensor:
        """Fetches keys (r, c, d)."""
        keys, index = self.source.keys.detach(), self.source.index
        if index is None:
            return keys[rows, cols].to(self.wide)
        drawn = index[rows, cols]
        out = self.buffers.get(2, (drawn.numel(), keys.shape[1]), keys)
        return torch.index_select(keys, 0, drawn.flatten(), out=out).to(self.wide).view(*drawn.shape, -1)

    def dot(self, query: Tensor, taken: Tensor) -> Tensor:
        g = self.buffers.get(0, taken.shape[:2], query)
        torch.bmm(taken, query[:, :, None], out=g[:, :, None])
        return g

    def norms(self, taken: Tensor) -> Tensor:
        return taken.square().sum(-1)

    def weigh(self, weights: Tensor, taken: Tensor, total: Tensor) -> None:
        total += torch.bmm(weights[:, None], taken)[:, 0]

    def spread(
        self, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, taken: Tensor, total: Tensor, span: Span
    ) -> None:
        grad = by_dot[:, :, None] * query[:, None]
        if by_norm is not None:
            grad += taken * (2 * by_norm)[:, :, None]
        if self.source.index is None:
            total[span] += grad
        else:
            total.index_add_(0, self.source.index[span].flatten(), grad.flatten(0, 1))

    def mask(self, scores: Tensor, span: Span) -> None:
        key_ids, query_ids, index = self.source.key_ids, self.source.query_ids, self.source.index
        if key_ids is not None and query_ids is not None:
            met = key_ids[span] if index is None else key_ids[index[span]]
            scores.masked_fill_(met == query_ids[span[0], None], -torch.inf)


class SmallBankKeys(KeysPerQuery):
    """Rows drawn from a bank so small that multiplying all of it and picking the drawn products is faster."""

    def __init__(self, query: Tensor, source: Source, dtype: torch.dtype | None) -> None:
        super().__init__(query, source)
        self.dtype, self.bank = dtype, source.keys.detach()
        self.shape = max(2 * tile_entries(query) // max(len(source.keys), 1), 8), max(self.width, 1)

    @cached_property
    def bank_norms(self) -> Tensor:
        return self.bank.square().sum(-1)

    def take(self, rows: slice, cols: slice) -> Tensor:
        """Gives the rows of the bank, (r, m); the keys stay where they are."""
        assert self.source.index is not None
        return self.source.index[rows]

    def _on_bank(self, rows: int) -> Tensor:
        return self.buffers.get(2, (rows, len(self.bank)), self.bank)

    def dot(self, query: Tensor, taken: Tensor) -> Tensor:
        products = multiply(query, self.bank.T, self._on_bank(len(query)), self.dtype)
        return torch.gather(products, 1, taken, out=self.buffers.get(0, taken.shape, query))

    def norms(self, taken: Tensor) -> Tensor:
        return self.bank_norms[taken]

    def _drawn(self, weights: Tensor, taken: Tensor) -> Tensor:
        """Weights (r, m) of drawn rows as weights (r, M) of the bank; a row drawn twice counts twice."""
        return self._on_bank(len(weights)).zero_().scatter_add_(1, taken, weights)

    def weigh(self, weights: Tensor, taken: Tensor, total: Tensor) -> None:
        add_product(total, self._drawn(weights, taken), self.bank, self.dtype)

    def spread(
        self, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, taken: Tensor, total: Tensor, span: Span
    ) -> None:
        add_product(total, self._drawn(by_dot, taken).T, query, self.dtype)
        if by_norm is not None:
            total += self.bank * (2 * self._drawn(by_norm, taken).sum(0))[:, None]


Tiles = SharedKeys | KeysPerQuery


def tiles_for(query: Tensor, source: Source, id_mask: IdMask | None, dtype: torch.dtype | None) -> Tiles:
    """Chooses the way through the pairs that suits how the keys are given."""
    if source.index is None and source.keys.dim() == 2:
        return SharedKeys(query, source, id_mask, dtype)
    small = source.index is not None and len(source.keys) <= WHOLE_BANK * source.index.shape[1]
    if small and source.keys.dtype == query.dtype:  # a bank in half precision is widened row by row instead
        return SmallBankKeys(query, source, dtype)
    return KeysPerQuery(query, source)
