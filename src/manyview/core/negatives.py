"""The contract between losses and everything else: a query, its positives, and the negatives it is pushed away from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyview.core.errors import UserError


@dataclass(frozen=True, eq=False)
class Source:
    """One place that negatives come from. Built and checked by `Negatives`.

    keys       (M, d) shared by all queries, or (N, M, d) one set per query
    index      (N, m) the rows of shared keys that each query meets; a bank is never copied
    key_ids    (M,), or (N, M) for keys per query: the images that the keys show
    query_ids  (N,) the images that the queries show; a key with the query's id is skipped
    weight     how often each key counts
    split      (queries, keys): the queries before it meet the keys after it, and the other way
               round. With keys that are the queries, both directions cost one pass.
    """

    keys: Tensor
    index: Tensor | None = None
    key_ids: Tensor | None = None
    query_ids: Tensor | None = None
    weight: float = 1.0
    split: tuple[int, int] | None = None


class Negatives:
    """What each query is pushed away from, and nothing else: a tuple of sources.

    >>> batch = Negatives(z, ids, ids)       # in-batch: an image never meets itself
    >>> both = batch + Negatives(queue)      # joined, nothing is copied
    """

    sources: tuple[Source, ...]

    def __init__(
        self,
        keys: Tensor,
        key_ids: Tensor | None = None,
        query_ids: Tensor | None = None,
        *,
        index: Tensor | None = None,
        weight: float = 1.0,
        split: tuple[int, int] | None = None,
    ) -> None:
        source = Source(keys, index, key_ids, query_ids, weight, split)
        _check(source)
        self.sources = (source,)

    def __add__(self, other: Negatives) -> Negatives:
        if not isinstance(other, Negatives):
            return NotImplemented
        joined = Negatives.__new__(Negatives)
        joined.sources = self.sources + other.sources
        return joined

    def __repr__(self) -> str:
        shapes = ", ".join(str(tuple(s.keys.shape)) for s in self.sources)
        return f"Negatives({shapes})"


class Triple(NamedTuple):
    """What a topology of `manyview.methods.topologies` hands to a loss, and how much the result counts."""

    query: Tensor  # (N, d)
    positives: Tensor  # (N, K, d)
    negatives: Negatives
    present: Tensor | None = None  # (N, K), which positives exist
    weight: float = 1.0
    total: int | None = None  # queries of all processes

    def loss(self, loss: Callable[..., Tensor], **options: Any) -> Tensor:
        """The loss of this query, these positives and these negatives."""
        more = options if self.present is None else {**options, "present": self.present}
        return loss(self.query, self.positives, self.negatives, **more)


def _check(source: Source) -> None:
    keys, index = source.keys, source.index
    if keys.dim() not in (2, 3) or not keys.is_floating_point():
        raise UserError(
            "keys", f"expected floats of shape (M, d) or (N, M, d), got {keys.dtype} of shape {tuple(keys.shape)}"
        )
    if not 0 < source.weight < math.inf:
        raise UserError("weight", f"expected a positive number, got {source.weight}")
    if index is not None:
        _check_index(keys, index)
    if (source.key_ids is None) != (source.query_ids is None):
        raise UserError("key_ids and query_ids", "give both or neither; an id is only ever compared with another id")
    if source.key_ids is not None and source.query_ids is not None:
        _check_ids(keys, source.key_ids, source.query_ids)
    if source.split is not None:
        if keys.dim() != 2 or index is not None:
            raise UserError("split", f"needs shared keys (M, d) without index, got keys of shape {tuple(keys.shape)}")
        if not 0 <= source.split[1] <= len(keys) or source.split[0] < 0:
            raise UserError("split", f"{source.split} is not a place among queries and {len(keys)} keys")


def _check_index(keys: Tensor, index: Tensor) -> None:
    if keys.dim() != 2 or index.dim() != 2 or index.dtype != torch.long:
        raise UserError(
            "index",
            f"expected int64 (N, m) into shared keys (M, d), "
            f"got {index.dtype} {tuple(index.shape)} into keys {tuple(keys.shape)}",
        )
    if index.device != keys.device:
        raise UserError("index", f"is on {index.device}, the keys are on {keys.device}")
    if index.numel() and index.device.type == "cpu":  # a GPU would have to wait for the answer
        low, high = (int(end) for end in index.aminmax())
        if low < 0 or high >= len(keys):
            raise UserError("index", f"expected rows 0 to {len(keys) - 1} of the keys, got {low} to {high}")


def _check_ids(keys: Tensor, key_ids: Tensor, query_ids: Tensor) -> None:
    if key_ids.shape != keys.shape[:-1]:
        raise UserError(
            "key_ids",
            f"expected shape {tuple(keys.shape[:-1])} for keys {tuple(keys.shape)}, got {tuple(key_ids.shape)}",
        )
    if query_ids.dim() != 1 or (keys.dim() == 3 and len(query_ids) != len(keys)):
        raise UserError("query_ids", f"expected shape (N,) for keys {tuple(keys.shape)}, got {tuple(query_ids.shape)}")
    for name, ids in (("key_ids", key_ids), ("query_ids", query_ids)):
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise UserError(None, f"{name}: expected integers, got {ids.dtype}")
        if ids.device != keys.device:
            raise UserError(None, f"{name}: is on {ids.device}, the keys are on {keys.device}")
