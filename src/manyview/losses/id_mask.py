"""The mask of pairs that do not count because key and query show the same image."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

COMPARED_AT_ONCE = 2**18  # pairs that are compared at once


class IdMask:
    """Marks the pairs of N queries and M shared keys that have equal ids.

    Comparing ids inside every tile would cost as much as half the matrix multiply. On a CPU the equal pairs are
    therefore found once by sorting and listed (a handful per query), and only those entries of a tile are touched.
    Small problems compare at once; where ids repeat so often that the list would outgrow the embeddings, and on a GPU,
    each tile compares.
    """

    def __init__(self, query_ids: Tensor, key_ids: Tensor) -> None:
        query_ids, key_ids = query_ids.long().contiguous(), key_ids.long().contiguous()
        self.query_ids, self.key_ids = query_ids, key_ids
        self._same: Tensor | None = None
        self._ends: list[int] | None = None
        if len(query_ids) * len(key_ids) <= COMPARED_AT_ONCE:
            self._same = query_ids[:, None] == key_ids
            return
        ordered, order = key_ids.sort()
        first = torch.searchsorted(ordered, query_ids)
        self.count = torch.searchsorted(ordered, query_ids, right=True) - first
        on_cpu = query_ids.device.type == "cpu"
        if on_cpu and (pairs := int(self.count.sum())) <= 16 * (len(query_ids) + len(key_ids)):
            ends = self.count.cumsum(0)
            within = torch.arange(pairs, device="cpu") - (ends - self.count).repeat_interleave(self.count)
            self._rows = torch.arange(len(query_ids), device="cpu").repeat_interleave(self.count)
            self._cols = order[first.repeat_interleave(self.count) + within]
            self._ends = [0, *ends.tolist()]

    @cached_property
    def count(self) -> Tensor:
        """The number of keys that do not count for each query, (N,)."""
        same = self.query_ids[:, None] == self.key_ids if self._same is None else self._same
        return same.sum(1)

    @property
    def leaves_negatives(self) -> bool:
        """Says whether the keys show two images or more, so that every query has a negative; False on a GPU,
        unasked."""
        on_cpu = self.key_ids.device.type == "cpu"
        return on_cpu and len(self.key_ids) > 0 and bool((self.key_ids != self.key_ids[0]).any())

    def fill(self, scores: Tensor, rows: slice, cols: slice) -> None:
        """Sets the excluded entries of one tile to minus infinity, in place."""
        if self._ends is None:
            same = self.query_ids[rows, None] == self.key_ids[cols] if self._same is None else self._same[rows, cols]
            scores.masked_fill_(same, -torch.inf)
            return
        listed = slice(self._ends[rows.start], self._ends[rows.stop])
        at = self._cols[listed]
        here = (at >= cols.start) & (at < cols.stop)
        if here.any():
            scores[self._rows[listed][here] - rows.start, at[here] - cols.start] = -torch.inf
