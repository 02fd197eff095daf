"""Batches of views. What is drawn for a sample (its place, its crops) depends only on (seed, epoch, id).

So batches are the same for any number of workers or processes, and an epoch can be entered in its middle. Data sets
that fit are decoded once; small pictures then become views a whole batch at once. Others stream through worker
processes that decode each file once for all its views. Between these two ways, crops differ by the rounding to 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Batch, Views
from manyview.data.dataset import Dataset
from manyview.data.memory import Resident, decode
from manyview.data.workers import Collated, Pipeline, Reader, Rows, start_workers

SHUFFLE = 0x5EED  # keeps the order of an epoch apart from what the views draw


class Loader:
    """Epochs of batches.

    >>> loader = Loader(dataset, pipeline, batch_size=256)
    >>> for batch in loader.epoch(0):
    ...     first, second = batch.views()["image"]

    batch_size  of all processes together; process `rank` of `world` gets its share
    shuffle     anew each epoch; False keeps the data set's order
    drop_last   leave out a last batch that is not full
    workers     processes that decode, where the data does not fit; None: one a core
    memory      bytes that decoded data may take; None: a quarter of the machine's, 0: never
    max_broken  the share of unreadable samples that is too much

    In place of a sample that cannot be read comes the next one that can, so that batches stay full; one of them may
    then be there twice. They are listed in `broken`, as far as this process has met them.
    """

    def __init__(
        self,
        dataset: Dataset,
        pipeline: Pipeline,
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
        _check_kinds(dataset, pipeline)
        self.dataset, self.pipeline, self.batch_size = dataset, pipeline, batch_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.rank, self.world, self.device, self.max_broken = rank, world, torch.device(device), max_broken
        self.broken: dict[int, str] = {}
        self.labels = torch.full((len(dataset),), -1) if dataset.labels is None else dataset.labels
        _check(self)
        self._decoded = decode(dataset, memory) if memory != 0 else None
        self._note(self._decoded.broken if self._decoded else {})
        self._stands_in = _next_readable(len(dataset), self.broken)
        self._told, self._begun = Rows(), 0
        source = Resident(dataset, self._decoded) if self._decoded else dataset
        reader = Reader(source, pipeline, seed, colour=self.device.type == "cpu")
        pinned = self.device.type == "cuda"
        self.at_once = self._at_once()
        self._stream = None if self.at_once else start_workers(reader, self._told, workers, pinned=pinned)

    def __len__(self) -> int:
        """Batches an epoch."""
        return (len(self.dataset) + (0 if self.drop_last else self.batch_size - 1)) // self.batch_size

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from the one numbered `start`. One epoch at a time."""
        if not _is_whole(number) or number < 0:
            raise UserError(None, f"epoch {number!r}: give a whole number from 0")
        if not _is_whole(start) or not 0 <= start <= len(self):
            raise UserError(None, f"start={start!r}: an epoch has batches 0 to {len(self) - 1}")
        if self._stream is None:
            for rows in self.rows(number, start):
                yield self._from_memory(number, rows)
            return
        self._begun += 1
        mine = self._begun
        self._told.todo = [[(number, row) for row in rows.tolist()] for rows in self.rows(number, start)]
        for collated in self._stream:
            if mine != self._begun:
                raise RuntimeError(f"epoch {number} cannot go on: another one was begun with the same loader")
            self._note(collated.broken)
            if collated.broken and not len(collated.ids):
                raise TooManyUnreadable(None, _in_a_row(self.dataset, collated.broken))
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
            return torch.arange(len(self.dataset))
        return order(key(SHUFFLE, self.seed, epoch, self.dataset.ids))

    def _at_once(self) -> bool:
        if self._decoded is None:
            return False
        return all(
            self.pipeline.at_once(self._decoded.views[name][:0].to(self.device))
            for name in self.pipeline.sources(self._decoded.views).values()
        )

    def _from_memory(self, epoch: int, rows: Tensor) -> Batch:
        assert self._decoded is not None
        decoded, index = self._decoded, self._stands_in[rows]
        ids, used = self.dataset.ids[index], set(self.pipeline.sources(self._decoded.views).values())

        def make(rows: slice) -> Views:
            raw = {name: all[index[rows]].to(self.device) for name, all in decoded.views.items() if name in used}
            return self.pipeline(raw, ids[rows], seed=self.seed, epoch=epoch)

        return self._batch(ids, index, {name: there[index] for name, there in decoded.present.items()}, make)

    def _from_workers(self, epoch: int, collated: Collated) -> Batch:
        ids, late = collated.ids, self.device.type != "cpu"

        def make(rows: slice) -> Views:
            here = {
                name: [copy[rows].to(self.device, non_blocking=True) for copy in copies]
                for name, copies in collated.views.items()
            }
            return self.pipeline.finish(here, ids[rows], seed=self.seed, epoch=epoch, colour=late)

        return self._batch(ids, collated.rows, collated.present, make)

    def _batch(self, ids: Tensor, index: Tensor, present: dict[str, Tensor], make: Callable[[slice], Views]) -> Batch:
        there = {view: present[name].to(self.device) for view, name in self.pipeline.sources(present).items()}
        return Batch(ids.to(self.device), index.to(self.device), self.labels[index].to(self.device), there, make)

    def _note(self, broken: dict[int, str]) -> None:
        """Counts what could not be read; too much of it ends the run."""
        self.broken |= broken
        if len(self.broken) > self.max_broken * len(self.dataset):
            some = "; ".join(f"{self.dataset.name(i)}: {why}" for i, why in list(self.broken.items())[:3])
            raise TooManyUnreadable(
                None,
                f"{len(self.broken)} of {len(self.dataset)} samples cannot be read, more than max_broken="
                f"{self.max_broken:g} of them ({some}): mend the files, or allow more",
            )


class TooManyUnreadable(UserError):
    """More samples than allowed could not be read."""


def _in_a_row(dataset: Dataset, broken: dict[int, str]) -> str:
    row, why = next(iter(broken.items()))
    return f"{len(broken)} samples in a row cannot be read, from {dataset.name(row)}: {why}"


def _next_readable(count: int, broken: dict[int, str]) -> Tensor:
    """(count,) each row, or the next readable one after it, round the end."""
    found = torch.arange(count)
    for row in sorted(broken, reverse=True) * 2:  # twice round, for those before the end
        found[row] = found[(row + 1) % count]
    return found


def _check(loader: Loader) -> None:
    for name in ("batch_size", "seed", "rank", "world"):
        if not _is_whole(getattr(loader, name)):
            raise UserError(None, f"{name}={getattr(loader, name)!r}: give a whole number")
    if loader.world < 1:
        raise UserError(None, f"world={loader.world}: there is at least one process")
    if loader.batch_size < 1 or loader.batch_size % loader.world:
        raise UserError(
            None, f"batch_size={loader.batch_size}: give at least 1, and a multiple of the {loader.world} processes"
        )
    if not 0 <= loader.rank < loader.world:
        raise UserError(None, f"rank={loader.rank}: a process has a number from 0 to world - 1 = {loader.world - 1}")
    if not 0 <= loader.max_broken <= 1:
        raise UserError(None, f"max_broken={loader.max_broken} is a share: give a number between 0 and 1")
    if len(loader.dataset) == 0:
        raise UserError(None, "the data set is empty: give one with samples")
    if len(loader) == 0:
        raise UserError(None, _too_few(loader))
    loader.pipeline.sources(loader.dataset.modalities)  # refuses what the data does not have


def _too_few(loader: Loader) -> str:
    count = len(loader.dataset)
    if count < 2:
        return "data: one image cannot be contrasted with others; give more"
    return f"batch_size={loader.batch_size} is more than the {count} samples: give {count} or less (--batch-size)"


def _check_kinds(dataset: object, pipeline: object) -> None:
    if not isinstance(dataset, Dataset):
        raise UserError(
            "dataset", f"{type(dataset).__name__} is none; open_data(name) makes one, Own(dataset) wraps one of torch's"
        )
    if not hasattr(pipeline, "prepare"):
        raise UserError(
            "pipeline",
            f"{type(pipeline).__name__} is none; give AUGMENTATIONS[name](size), or TransformPipeline(transform)",
        )


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
