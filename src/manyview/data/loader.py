"""Batches of views. What is drawn for a sample (its place, its crops) depends only on (seed, epoch, id).

So batches are the same for any number of workers or processes, and an epoch can be entered in its middle. Data sets
that fit are decoded once; small pictures then become views a whole batch at once. Others stream through worker
processes that decode each file once for all its views.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.data.dataset import Dataset, Unreadable
from manyview.data.memory import Resident, decode
from manyview.draws import key, order

Views = dict[str, list[Tensor]]
SHUFFLE = 0x5EED  # keeps the order of an epoch apart from what the views draw
IN_A_ROW = 100  # so many unreadable samples in a row are no accident


class Maker(Protocol):
    """What the loader asks of a stack of views (`manyview.views.Stack`, or one's own)."""

    def at_once(self, images: Tensor) -> bool: ...
    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int, epoch: int) -> Views: ...
    def prepare(self, views: Mapping[str, Tensor], id: int, *, seed: int, epoch: int, colour: bool) -> Views: ...
    def finish(self, prepared: Views, ids: Tensor, *, seed: int, epoch: int, colour: bool) -> Views: ...


@dataclass(frozen=True, eq=False)
class Batch:
    """N samples of one process.

    ids, index, labels  (N,) int64; a label is -1 where there is none
    present             (N,) bool per raw view: False where a sample lacks it, and its view is zero
    """

    ids: Tensor
    index: Tensor
    labels: Tensor
    present: dict[str, Tensor]
    make: Callable[[slice], Views]

    def views(self, rows: slice = slice(None)) -> Views:
        """{raw view: [look, ...]}, each (N, C, size, size). Asked again, it makes the same views again."""
        return self.make(rows)

    def __len__(self) -> int:
        return len(self.ids)


class Loader:
    """Epochs of batches.

    >>> loader = Loader(dataset, stack, batch_size=256)
    >>> for batch in loader.epoch(0):
    ...     first, second = batch.views()["image"]

    batch_size  of all processes together; process `rank` of `world` gets its share
    shuffle     anew each epoch; False keeps the data set's order
    drop_last   leave out a last batch that is not full
    workers     processes that decode, where the data does not fit; None: one a core
    memory      bytes that decoded data may take; None: a quarter of the machine's, 0: never
    max_broken  the share of unreadable samples that is too much
    """

    def __init__(
        self,
        dataset: Dataset,
        views: Maker,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        workers: int | None = None,
        device: str | torch.device = "cpu",
        rank: int = 0,
        world: int = 1,
        memory: int | None = None,
        max_broken: float = 0.05,
    ) -> None:
        self.dataset, self.maker, self.batch_size = dataset, views, batch_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.rank, self.world, self.device, self.max_broken = rank, world, torch.device(device), max_broken
        self.broken: dict[int, str] = {}
        self.labels = torch.full((len(dataset),), -1) if dataset.labels is None else dataset.labels
        _check(self)
        self._decoded = decode(dataset, memory) if memory != 0 else None
        self._note(self._decoded.broken if self._decoded else {})
        readable = torch.ones(len(dataset), dtype=torch.bool)
        readable[list(self.broken)] = False
        self.usable = readable.nonzero()[:, 0]
        if len(self) == 0:
            raise ValueError(f"batch_size={batch_size} is more than the {len(self.usable)} samples: give less")
        self._stream = None if self._at_once() else _Stream(self, workers)

    def __len__(self) -> int:
        """Batches an epoch."""
        return (len(self.usable) + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from the one numbered `start`."""
        if self._stream is None:
            for rows in self.rows(number, start):
                yield self._from_memory(number, rows)
            return
        for collated in self._stream.epoch(number, start):
            self._note(collated.broken)
            yield self._from_workers(number, collated)

    def rows(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The rows of the data set that make up each batch of this process."""
        ordered = self.order(epoch)
        for number in range(start, len(self)):
            whole = ordered[number * self.batch_size : (number + 1) * self.batch_size]
            yield whole.tensor_split(self.world)[self.rank]

    def order(self, epoch: int) -> Tensor:
        """All rows in the order they are seen in an epoch, over all processes."""
        if not self.shuffle:
            return self.usable
        return self.usable[order(key(SHUFFLE, self.seed, epoch, self.dataset.ids[self.usable]))]

    def _at_once(self) -> bool:
        if self._decoded is None:
            return False
        empty = (views[:0].to(self.device) for views in self._decoded.views.values())
        return all(self.maker.at_once(images) for images in empty)

    def _from_memory(self, epoch: int, index: Tensor) -> Batch:
        assert self._decoded is not None
        decoded, ids = self._decoded, self.dataset.ids[index]

        def make(rows: slice) -> Views:
            raw = {name: views[index[rows]].to(self.device) for name, views in decoded.views.items()}
            return self.maker(raw, ids[rows], seed=self.seed, epoch=epoch)

        present = {name: there[index] for name, there in decoded.present.items()}
        return Batch(ids, index, self.labels[index], present, make)

    def _from_workers(self, epoch: int, collated: _Collated) -> Batch:
        ids, late = collated.ids, self.device.type != "cpu"

        def make(rows: slice) -> Views:
            here = {
                name: [look[rows].to(self.device, non_blocking=True) for look in looks]
                for name, looks in collated.views.items()
            }
            return self.maker.finish(here, ids[rows], seed=self.seed, epoch=epoch, colour=late)

        return Batch(ids, collated.rows, self.labels[collated.rows], collated.present, make)

    def _note(self, broken: dict[int, str]) -> None:
        """Counts what could not be read; too much of it ends the run."""
        self.broken |= broken
        if len(self.broken) > self.max_broken * len(self.dataset):
            some = "; ".join(f"{self.dataset.name(i)}: {why}" for i, why in list(self.broken.items())[:3])
            raise TooManyBroken(
                f"{len(self.broken)} of {len(self.dataset)} samples cannot be read, more than max_broken="
                f"{self.max_broken:g} of them ({some}): mend the files, or allow more"
            )


class TooManyBroken(ValueError):
    """More samples than allowed could not be read."""


class _Prepared(NamedTuple):
    id: int
    row: int
    views: Views
    broken: dict[int, str]  # what was tried before


class _Reader(torch.utils.data.Dataset[_Prepared]):
    """What a worker does with one sample: read it, or the next one that can be read, and prepare its views."""

    def __init__(self, dataset: Dataset | Resident, maker: Maker, seed: int, colour: bool) -> None:
        self.dataset, self.maker, self.seed, self.colour = dataset, maker, seed, colour

    def __getitem__(self, where: tuple[int, int]) -> _Prepared:
        epoch, row = where
        broken: dict[int, str] = {}
        for step in range(min(IN_A_ROW, len(self.dataset))):
            index = (row + step) % len(self.dataset)
            try:
                sample = self.dataset[index]
            except Unreadable as error:
                broken[index] = str(error)
                continue
            made = self.maker.prepare(sample.views, sample.id, seed=self.seed, epoch=epoch, colour=self.colour)
            return _Prepared(sample.id, sample.index, made, broken)
        return _Prepared(0, row, {}, broken)


class _Stream:
    """Worker processes that stay for all epochs; they are told rows together with their epoch."""

    def __init__(self, loader: Loader, workers: int | None) -> None:
        self.loader, self.number, self.start = loader, 0, 0
        dataset = Resident(loader.dataset, loader._decoded) if loader._decoded else loader.dataset
        workers = (os.cpu_count() or 1) if workers is None else workers
        self.batches: DataLoader[Any] = DataLoader(
            _Reader(dataset, loader.maker, loader.seed, loader.device.type == "cpu"),
            batch_sampler=self,
            num_workers=workers,
            collate_fn=_collate,
            persistent_workers=workers > 0,
            pin_memory=loader.device.type == "cuda",
        )

    def epoch(self, number: int, start: int) -> Iterator[_Collated]:
        self.number, self.start = number, start
        for collated in self.batches:
            if not collated.views:
                some = next(iter(collated.broken.items()))
                raise TooManyBroken(
                    f"{len(collated.broken)} samples in a row cannot be read, from "
                    f"{self.loader.dataset.name(some[0])}: {some[1]}"
                )
            yield collated

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for rows in self.loader.rows(self.number, self.start):
            yield [(self.number, row) for row in rows.tolist()]

    def __len__(self) -> int:
        return len(self.loader) - self.start


class _Collated(NamedTuple):
    ids: Tensor
    rows: Tensor
    views: Views
    present: dict[str, Tensor]
    broken: dict[int, str]


def _collate(samples: Sequence[_Prepared]) -> _Collated:
    """A view that a sample lacks is zero; nothing is left if a sample, and all after it, could not be read."""
    broken = {index: why for sample in samples for index, why in sample.broken.items()}
    ids, rows = (torch.tensor([getattr(sample, which) for sample in samples]) for which in ("id", "row"))
    if not all(sample.views for sample in samples):
        return _Collated(ids, rows, {}, {}, broken)
    likes = {name: looks for sample in samples for name, looks in sample.views.items()}
    views = {
        name: [
            torch.stack([s.views[name][k] if name in s.views else torch.zeros_like(like) for s in samples])
            for k, like in enumerate(looks)
        ]
        for name, looks in likes.items()
    }
    present = {name: torch.tensor([name in sample.views for sample in samples]) for name in likes}
    return _Collated(ids, rows, views, present, broken)


def _check(loader: Loader) -> None:
    if loader.batch_size < 1 or loader.batch_size % loader.world:
        raise ValueError(
            f"batch_size={loader.batch_size}: the batch of all {loader.world} processes, a multiple of their number"
        )
    if not 0 <= loader.rank < loader.world:
        raise ValueError(f"rank={loader.rank}: a process has a number from 0 to world - 1 = {loader.world - 1}")
    if not 0 <= loader.max_broken <= 1:
        raise ValueError(f"max_broken={loader.max_broken} is a share: give a number between 0 and 1")
    if len(loader.dataset) == 0:
        raise ValueError("the data set is empty: give one with samples")
