"""Some samples of a data set, as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset


def subset(dataset: Dataset, index: Tensor | Sequence[int]) -> Dataset:
    """The samples at `index`, in that order: rows, each at most once, or a boolean for every row.

    Ids, labels and class names stay what they were; the index is new and dense. A `Batched` data set stays one.
    """
    rows = torch.as_tensor(index)
    if rows.dtype == torch.bool:
        if rows.shape != (len(dataset),):
            raise UserError("index", f"expected ({len(dataset)},) booleans, got {tuple(rows.shape)}")
        rows = rows.nonzero()[:, 0]
    _check_rows(rows, len(dataset))
    kind = BatchedSubset if isinstance(dataset, Batched) else Subset
    return kind(dataset, rows.long())


class Subset:
    """Built and checked by `subset`. `rows` (n,) are the places of its samples in `dataset`."""

    def __init__(self, dataset: Dataset, rows: Tensor) -> None:
        self.dataset, self.rows = dataset, rows
        self.ids = dataset.ids[rows]
        self.labels = None if dataset.labels is None else dataset.labels[rows]
        self.threads: bool = getattr(dataset, "threads", False)  # may be read by several at once

    @property
    def classes(self) -> tuple[str, ...]:
        return self.dataset.classes

    @property
    def modalities(self) -> tuple[str, ...]:
        return self.dataset.modalities

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        index = range(len(self))[index]
        return replace(self.dataset[int(self.rows[index])], index=index)

    def name(self, index: int) -> str:
        return self.dataset.name(int(self.rows[index]))


class BatchedSubset(Subset):
    """A subset of a data set that makes many samples at once."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return cast(Batched, self.dataset).batch(self.rows[index])


def _check_rows(rows: Tensor, count: int) -> None:
    if rows.dim() != 1 or (rows.numel() and (rows.is_floating_point() or rows.is_complex())):
        raise UserError("index", f"expected whole numbers (n,), got {rows.dtype} {tuple(rows.shape)}")
    if not len(rows):
        raise UserError("index", "no samples are left; choose at least one")
    low, high = (int(end) for end in rows.aminmax())
    if low < 0 or high >= count:
        raise UserError("index", f"expected rows 0 to {count - 1}, got {low} to {high}")
    if len(rows.unique()) < len(rows):
        raise UserError("index", "a row is there twice; a sample is in a data set once")
