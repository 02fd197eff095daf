"""Data sets that fit are decoded once, into one tensor a view; batches are then rows of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from manyview.contract import Sample
from manyview.data.dataset import Batched, Dataset, Unreadable

CHUNK = 1024
PROBES = 16


@dataclass(eq=False)
class Decoded:
    """Raw views of a whole data set.

    views    (n, C, H, W) by name; rows that could not be read, or lack the view, are zero
    present  (n,) bool by name
    broken   the reasons of rows that could not be read
    """

    views: dict[str, Tensor]
    present: dict[str, Tensor]
    broken: dict[int, str] = field(default_factory=dict)


@dataclass(eq=False)
class Resident:
    """A data set whose samples are taken from memory; otherwise the one it was decoded from."""

    dataset: Dataset
    decoded: Decoded

    def __getitem__(self, index: int) -> Sample:
        if index in self.decoded.broken:
            raise Unreadable(self.decoded.broken[index])
        there = {name: views[index] for name, views in self.decoded.views.items() if self.decoded.present[name][index]}
        label = -1 if self.dataset.labels is None else int(self.dataset.labels[index])
        return Sample(int(self.dataset.ids[index]), index, there, label)

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return self.dataset.name(index)


def default_limit() -> int:
    """A quarter of the machine's memory, in bytes; 2 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
    except (AttributeError, ValueError):
        return 2 << 30


def decode(dataset: Dataset, limit: int | None = None) -> Decoded | None:
    """The whole data set, or None if its pictures differ in size or take more than `limit` bytes.

    A few samples over the whole set are looked at first, so that "no" is a quick answer.
    """
    shapes = _probe(dataset)
    if shapes is None:
        return None
    size = len(dataset) * sum(prod(shape) * dtype.itemsize for shape, dtype in shapes.values())
    if size > (default_limit() if limit is None else limit):
        return None
    decoded = Decoded(
        {name: torch.zeros(len(dataset), *shape, dtype=dtype) for name, (shape, dtype) in shapes.items()},
        {name: torch.ones(len(dataset), dtype=torch.bool) for name in shapes},
    )
    return decoded if (_fill_batched if isinstance(dataset, Batched) else _fill)(dataset, decoded) else None


Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _probe(dataset: Dataset) -> Shapes | None:
    """Shape and dtype of every view, None if they differ or nothing can be read."""
    found: Shapes = {}
    for index in sorted({round(i * (len(dataset) - 1) / PROBES) for i in range(PROBES + 1)}):
        sample = _read(dataset, index)
        for name, view in sample.views.items() if isinstance(sample, Sample) else ():
            if found.setdefault(name, (tuple(view.shape), view.dtype)) != (tuple(view.shape), view.dtype):
                return None
    return found or None


def _read(dataset: Dataset, index: int) -> Sample | str:
    try:
        return dataset[index]
    except Unreadable as error:
        return str(error)


def _fill_batched(dataset: Dataset, decoded: Decoded) -> bool:
    assert isinstance(dataset, Batched)
    for rows in torch.arange(len(dataset)).split(CHUNK):
        for name, views in dataset.batch(rows).items():
            decoded.views[name][rows] = views
    return True


def _fill(dataset: Dataset, decoded: Decoded) -> bool:
    for index, sample in _samples(dataset):
        if isinstance(sample, str):
            decoded.broken[index] = sample
        missing = decoded.views.keys() - (sample.views.keys() if isinstance(sample, Sample) else ())
        for name in missing:
            decoded.present[name][index] = False
        for name, view in sample.views.items() if isinstance(sample, Sample) else ():
            room = decoded.views.get(name)
            if room is None or view.shape != room.shape[1:] or view.dtype != room.dtype:
                return False
            room[index] = view
    return True


def _samples(dataset: Dataset) -> Iterator[tuple[int, Sample | str]]:
    """In order; decoders leave Python's lock, so that threads help."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for rows in torch.arange(len(dataset)).split(CHUNK):
            yield from zip(rows.tolist(), pool.map(lambda i: _read(dataset, i), rows.tolist()), strict=True)
