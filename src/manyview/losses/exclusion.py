"""Which pairs do not count because key and query show the same image."""

from __future__ import annotations

import torch
from torch import Tensor

Span = slice  # a run of rows or columns, with start and stop given


class Exclusion:
    """Equal ids between N queries and M shared keys, found once by sorting.

    Comparing ids inside every tile would cost as much as half the matrix multiply. On a CPU the equal
    pairs are therefore listed (a handful per query) and only those entries of a tile are touched. Where
    ids repeat so often that the list would outgrow the embeddings, and on a GPU, tiles compare.
    """

    def __init__(self, query_ids: Tensor, key_ids: Tensor) -> None:
        self.query_ids, self.key_ids = query_ids, key_ids
        ordered, self._order = key_ids.sort()
        self._first = torch.searchsorted(ordered, query_ids)
        self.count = torch.searchsorted(ordered, query_ids, right=True) - self._first  # (N,)
        pairs = int(self.count.sum())
        self._listed = query_ids.device.type == "cpu" and pairs <= 16 * (len(query_ids) + len(key_ids))
        if self._listed:
            self._list(pairs)

    def _list(self, pairs: int) -> None:
        ends = self.count.cumsum(0)
        within = torch.arange(pairs) - (ends - self.count).repeat_interleave(self.count)
        self._rows = torch.arange(len(self.count)).repeat_interleave(self.count)
        self._cols = self._order[self._first.repeat_interleave(self.count) + within]
        self._ends = [0, *ends.tolist()]

    def fill(self, scores: Tensor, rows: Span, cols: Span) -> None:
        """Sets the excluded entries of one tile, in place, to minus infinity."""
        if not self._listed:
            same = self.query_ids[rows, None] == self.key_ids[cols]
            scores.masked_fill_(same, -torch.inf)
            return
        listed = slice(self._ends[rows.start], self._ends[rows.stop])
        at = self._cols[listed]
        here = (at >= cols.start) & (at < cols.stop)
        if here.any():
            scores[self._rows[listed][here] - rows.start, at[here] - cols.start] = -torch.inf
