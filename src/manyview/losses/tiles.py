"""How a tile of inner products comes about, for each way in which keys can be given.

Every class offers the engine the same steps: `spans` walks the pairs, `dot` multiplies, `weigh` sums keys by weights,
`spread` gives keys their gradient, `fill` marks pairs that do not count. Keys may be stored in half precision: they are
widened a tile at a time. Tiles live in buffers that are used again, since touching fresh memory costs more than filling
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from manyview.contract import Source
from manyview.losses.exclusion import Exclusion

TILE = 2**20  # entries: a few such float32 tiles stay in a processor's last cache
CUDA_TILE = 2**25
WHOLE_BANK = 32  # drawing more than one row in so many, multiplying the whole bank beats gathering the rows


class Keys(Protocol):
    """(rows, cols) are slices of the queries and of the keys that each of those queries meets."""

    def spans(self) -> Iterator[tuple[slice, slice]]: ...

    def dot(self, query: Tensor, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        """The products (r, c), and another tile of that shape."""

    def norms(self, rows: slice, cols: slice) -> Tensor:
        """|k|^2, (c,) or (r, c)."""

    def weigh(self, weights: Tensor, total: Tensor, rows: slice, cols: slice) -> None:
        """total (r, d) += weights (r, c) times the keys."""

    def spread(
        self, into: Tensor, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, rows: slice, cols: slice
    ) -> None:
        """Adds to the gradient of all keys."""

    def fill(self, scores: Tensor, rows: slice, cols: slice) -> None: ...


class Buffers:
    """Memory for tiles, by number, allocated at the first use."""

    def __init__(self) -> None:
        self._flat: dict[int, Tensor] = {}

    def get(self, number: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        size = torch.Size(shape).numel()
        if number not in self._flat or self._flat[number].numel() < size:
            self._flat[number] = like.new_empty(size)
        return self._flat[number][:size].view(shape)


def tile_entries(like: Tensor) -> int:
    return CUDA_TILE if like.is_cuda else TILE


def steps(start: int, stop: int, step: int) -> list[slice]:
    return [slice(i, min(i + step, stop)) for i in range(start, stop, step)]


def multiply(a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> Tensor:
    """a @ b, multiplied in `dtype` if one is given."""
    return torch.mm(a, b, out=out) if dtype is None else out.copy_(a.to(dtype) @ b.to(dtype))


def add_product(total: Tensor, a: Tensor, b: Tensor, dtype: torch.dtype | None) -> None:
    if dtype is None:
        total.addmm_(a, b)
    else:
        total += a.to(dtype) @ b.to(dtype)


Passed = TypeVar("Passed", bound=Callable[..., object])


def exact(step: Passed) -> Passed:
    """For the forward and backward of a Function: outside autocast, and never as part of a second derivative.

    Tiles that are made again carry no graph, so differentiating the backward would silently be wrong.
    """

    @wraps(step)
    def run(ctx: Any, first: Tensor, *rest: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("manyview's losses have no second derivative: call backward() without create_graph=True")
        with torch.autocast(first.device.type, enabled=False):
            return step(ctx, first, *rest)

    return cast(Passed, run)


class SharedKeys:
    """Keys (M, d) that all queries meet."""

    def __init__(self, query: Tensor, source: Source, exclusion: Exclusion | None, dtype: torch.dtype | None) -> None:
        self.query, self.keys, self.exclusion, self.dtype = query, source.keys, exclusion, dtype
        self.buffers = Buffers()
        rows = min(max(len(query), 1), 1024)
        self.shape = rows, max(tile_entries(query) // rows, 256)

    def spans(self) -> Iterator[tuple[slice, slice]]:
        for rows in steps(0, len(self.query), self.shape[0]):
            for cols in steps(0, len(self.keys), self.shape[1]):
                yield rows, cols

    def _tile(self, cols: slice) -> Tensor:
        return self.keys[cols].to(self.query.dtype)

    def dot(self, query: Tensor, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        keys = self._tile(cols)
        g, spare = (self.buffers.get(i, (len(query), len(keys)), query) for i in range(2))
        return multiply(query, keys.T, g, self.dtype), spare

    def norms(self, rows: slice, cols: slice) -> Tensor:
        return self._tile(cols).square().sum(-1)

    def weigh(self, weights: Tensor, total: Tensor, rows: slice, cols: slice) -> None:
        add_product(total, weights, self._tile(cols), self.dtype)

    def spread(
        self, into: Tensor, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, rows: slice, cols: slice
    ) -> None:
        add_product(into[cols], by_dot.T, query, self.dtype)
        if by_norm is not None:
            into[cols] += self._tile(cols) * (2 * by_norm.sum(0))[:, None]

    def fill(self, scores: Tensor, rows: slice, cols: slice) -> None:
        if self.exclusion is not None:
            self.exclusion.fill(scores, rows, cols)


class OwnKeys:
    """One set of keys per query: given as (N, M, d), or rows of a bank drawn by `index` and gathered a tile at a
    time."""

    def __init__(self, query: Tensor, source: Source) -> None:
        self.query, self.source = query, source
        self.buffers = Buffers()
        self.width = source.keys.shape[1] if source.index is None else source.index.shape[1]
        budget = max(tile_entries(query) // 4 // query.shape[1], 1)  # gathered vectors that stay in a core's own cache
        width = max(self.width, 1)
        self.shape = max(budget // width, 1), min(width, budget)

    def spans(self) -> Iterator[tuple[slice, slice]]:
        for rows in steps(0, len(self.query), self.shape[0]):
            for cols in steps(0, self.width, self.shape[1]):
                yield rows, cols

    def _gather(self, rows: slice, cols: slice) -> Tensor:
        """(r, c, d)"""
        keys, index = self.source.keys, self.source.index
        if index is None:
            return keys[rows, cols].to(self.query.dtype)
        drawn = index[rows, cols]
        out = self.buffers.get(2, (drawn.numel(), keys.shape[1]), keys)
        torch.index_select(keys.detach(), 0, drawn.flatten(), out=out)
        return out.to(self.query.dtype).view(*drawn.shape, -1)

    def dot(self, query: Tensor, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        self._keys = self._gather(rows, cols)  # used again by norms, weigh and spread
        g, spare = (self.buffers.get(i, self._keys.shape[:2], query) for i in range(2))
        torch.bmm(self._keys, query[:, :, None], out=g[:, :, None])
        return g, spare

    def norms(self, rows: slice, cols: slice) -> Tensor:
        return self._keys.square().sum(-1)

    def weigh(self, weights: Tensor, total: Tensor, rows: slice, cols: slice) -> None:
        total += torch.bmm(weights[:, None], self._keys)[:, 0]

    def spread(
        self, into: Tensor, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, rows: slice, cols: slice
    ) -> None:
        grad = by_dot[:, :, None] * query[:, None]
        if by_norm is not None:
            grad += self._keys * (2 * by_norm)[:, :, None]
        if self.source.index is None:
            into[rows, cols] += grad
        else:
            into.index_add_(0, self.source.index[rows, cols].flatten(), grad.flatten(0, 1))

    def fill(self, scores: Tensor, rows: slice, cols: slice) -> None:
        key_ids, query_ids, index = self.source.key_ids, self.source.query_ids, self.source.index
        if key_ids is not None and query_ids is not None:
            met = key_ids[rows, cols] if index is None else key_ids[index[rows, cols]]
            scores.masked_fill_(met == query_ids[rows, None], -torch.inf)


class DrawnKeys(OwnKeys):
    """Rows drawn from a bank so small that multiplying all of it and picking the drawn products is faster."""

    def __init__(self, query: Tensor, source: Source, dtype: torch.dtype | None) -> None:
        super().__init__(query, source)
        self.dtype = dtype
        self.shape = max(2 * tile_entries(query) // max(len(source.keys), 1), 8), max(self.width, 1)

    def _index(self, rows: slice) -> Tensor:
        assert self.source.index is not None
        return self.source.index[rows]

    def _bank(self) -> Tensor:
        return self.source.keys.detach().to(self.query.dtype)

    def dot(self, query: Tensor, rows: slice, cols: slice) -> tuple[Tensor, Tensor]:
        products = multiply(query, self._bank().T, self._on_bank(len(query)), self.dtype)
        g, spare = (self.buffers.get(i, (len(query), self.width), query) for i in range(2))
        return torch.gather(products, 1, self._index(rows), out=g), spare

    def norms(self, rows: slice, cols: slice) -> Tensor:
        return self._bank().square().sum(-1)[self._index(rows)]

    def _on_bank(self, rows: int) -> Tensor:
        return self.buffers.get(2, (rows, len(self.source.keys)), self.query)

    def _drawn(self, weights: Tensor, rows: slice) -> Tensor:
        """Weights (r, m) of drawn rows as weights (r, M) of the bank; a row drawn twice counts twice."""
        return self._on_bank(len(weights)).zero_().scatter_add_(1, self._index(rows), weights)

    def weigh(self, weights: Tensor, total: Tensor, rows: slice, cols: slice) -> None:
        add_product(total, self._drawn(weights, rows), self._bank(), self.dtype)

    def spread(
        self, into: Tensor, by_dot: Tensor, by_norm: Tensor | None, query: Tensor, rows: slice, cols: slice
    ) -> None:
        add_product(into, self._drawn(by_dot, rows).T, query, self.dtype)
        if by_norm is not None:
            into += self._bank() * (2 * self._drawn(by_norm, rows).sum(0))[:, None]


def tiles_of(query: Tensor, source: Source, exclusion: Exclusion | None, dtype: torch.dtype | None) -> Keys:
    """The way through the pairs that suits how the keys are given."""
    if source.index is not None and len(source.keys) <= WHOLE_BANK * source.index.shape[1]:
        return DrawnKeys(query, source, dtype)
    if source.index is not None or source.keys.dim() == 3:
        return OwnKeys(query, source)
    return SharedKeys(query, source, exclusion, dtype)
