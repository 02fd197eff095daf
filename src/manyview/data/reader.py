"""What a worker does: it reads the samples of a batch and prepares their views, all in one piece of memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch.multiprocessing as mp
from torch import Tensor

from manyview.core.memory import new_memory
from manyview.core.sample import Sample, Views
from manyview.data.cache import Cache
from manyview.data.dataset import Dataset, Shrink, read
from manyview.data.decoded import some_samples
from manyview.data.slots import NO_SLOT, Job, Row, shared, shared_empty

IN_A_ROW = 100  # so many unreadable samples in a row are no accident
_over: Any = None


class Plan(Protocol):
    """What a pipeline has drawn for the samples of a batch, which are known by their number in it."""

    def shrink(self, number: int, height: int, width: int) -> int:
        """How many times smaller the reference, a picture of three channels of 8 bits, may be decoded."""
        ...

    def prepare(
        self,
        number: int,
        raw: Mapping[str, Tensor],
        size: Sequence[int] | None = None,
        out: Mapping[str, Sequence[Tensor]] | None = None,
    ) -> Views:
        """Makes a sample's views, in `out` if that is given; `size` is that of the whole picture."""
        ...


class Pipeline(Protocol):
    """What the loader asks of a view pipeline (`manyview.views.ViewPipeline`, or one's own)."""

    def sources(self, modalities: Iterable[str]) -> dict[str, str]: ...
    def at_once(self, images: Tensor) -> bool: ...
    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int, epoch: int) -> Views: ...
    def plan(self, modalities: Iterable[str], ids: Tensor, *, seed: int, epoch: int, colour: bool) -> Plan: ...
    def finish(self, prepared: Views, ids: Tensor, *, seed: int, epoch: int, colour: bool) -> Views: ...


class Prepared(NamedTuple):
    """One sample as a worker hands it on; `row` is -1 if none could be read."""

    id: int
    row: int
    modalities: frozenset[str]  # those that the sample has
    views: Views
    unreadable: dict[int, str]  # the rows that were tried before, and why not


class Reader:
    """Reads one sample, or the next one that can be read, and prepares its views."""

    def __init__(
        self,
        dataset: Dataset,
        pipeline: Pipeline,
        seed: int,
        colour: bool,
        examples: Mapping[str, Tensor] | None = None,
        cache: Cache | None = None,
    ) -> None:
        self.dataset, self.pipeline, self.seed, self.colour, self.cache = dataset, pipeline, seed, colour, cache
        self.examples = dict(examples or {})  # of modalities that no sample may have
        self.read = counter()
        used = set(pipeline.sources(dataset.modalities).values())
        self.modalities = tuple(name for name in dataset.modalities if name in used)
        self._shrinks = self.modalities[:1] == tuple(dataset.modalities)[:1]  # whether crops are drawn on the reference

    def __getitem__(self, where: Row) -> Prepared:
        return self.prepared(where, self.plan(where[0], self.dataset.ids[[where[1]]]), 0)

    def plan(self, epoch: int, ids: Tensor) -> Plan:
        """Draws for samples with these ids."""
        return self.pipeline.plan(self.modalities, ids, seed=self.seed, epoch=epoch, colour=self.colour)

    def prepared(
        self, where: Row, plan: Plan, number: int, out: Mapping[str, Sequence[Tensor]] | None = None
    ) -> Prepared:
        """The sample that has this number in the plan, or else the next one that can be read, by a plan of its own."""
        epoch, row = where
        unreadable: dict[int, str] = {}
        for step in range(min(IN_A_ROW, len(self.dataset))):
            end_if_over()
            index = (row + step) % len(self.dataset)
            if step:
                plan, number = self.plan(epoch, self.dataset.ids[[index]]), 0
            sample = self._sample(index, partial(plan.shrink, number) if self._shrinks else None)
            self.read.value += 1
            if isinstance(sample, str):
                unreadable[index] = sample
                continue
            views = plan.prepare(number, self.used(sample), sample.size, out)
            return Prepared(sample.id, sample.index, frozenset(sample.modalities), views, unreadable)
        return Prepared(0, -1, frozenset(), {}, unreadable)

    def _sample(self, index: int, shrink: Shrink | None) -> Sample | str:
        if self.cache is None:
            return read(self.dataset, index, shrink)
        return self.cache.read(self.dataset, index, self.modalities, shrink)

    def used(self, sample: Sample) -> dict[str, Tensor]:
        """The modalities that views are made of."""
        return {name: sample.modalities[name] for name in self.modalities if name in sample.modalities}


class Collated(NamedTuple):
    """The samples of a batch, joined, and the slot of shared memory that their views are in."""

    ids: Tensor
    rows: Tensor
    views: Views
    present: dict[str, Tensor]
    unreadable: dict[int, str]
    slot: int = NO_SLOT


class Batches(torch.utils.data.Dataset[Collated]):
    """Reads the samples of a batch, each view of them into one piece of memory.

    What a sample lacks is zero, whether or not another sample of the batch has it.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.modalities: tuple[str, ...] = ()
        self.zeros: Views = {}
        self._slots: dict[int, Views] = {}  # of this worker
        unmet = Sample(0, 0, {name: reader.examples[name] for name in reader.modalities if name in reader.examples})
        for sample in (*some_samples(reader.dataset), unmet):
            if sample.modalities.keys() - set(self.modalities):
                self.modalities = (*self.modalities, *sample.modalities)
                made = reader.plan(0, torch.tensor([sample.id])).prepare(0, reader.used(sample))
                self.zeros |= {name: [torch.zeros_like(copy) for copy in copies] for name, copies in made.items()}
        self.modalities = tuple(name for name in reader.dataset.modalities if name in self.modalities)
        ordered = dict.fromkeys((*self.modalities, *self.zeros))
        self.zeros = {name: self.zeros[name] for name in ordered if name in self.zeros}

    @property
    def bytes(self) -> int:
        """What a sample takes."""
        return sum(zero.nbytes for copies in self.zeros.values() for zero in copies)

    def __getitems__(self, job: Job) -> Collated:
        """Reads a batch, which is empty if one of its samples, and all after it, could not be read."""
        room = self._room(job)
        samples = list(self._read(job.rows, room))
        unreadable = {row: reason for sample in samples for row, reason in sample.unreadable.items()}
        samples = samples if all(sample.row >= 0 for sample in samples) else []
        ids, rows = (
            shared(torch.tensor([getattr(sample, which) for sample in samples], dtype=torch.int64))
            for which in ("id", "row")
        )
        views = {name: [copy[: len(samples)] for copy in copies] for name, copies in room.items()}
        present = {
            name: shared(torch.tensor([name in sample.modalities for sample in samples], dtype=torch.bool))
            for name in self.modalities
        }
        return Collated(ids, rows, views, present, unreadable, job.slot)

    def _read(self, rows: Sequence[Row], room: Views) -> Iterator[Prepared]:
        if not rows:
            return
        plan = self.reader.plan(rows[0][0], self.reader.dataset.ids[[row for _, row in rows]])
        for number, where in enumerate(rows):
            out = {name: [copy[number] for copy in copies] for name, copies in room.items()}
            sample = self.reader.prepared(where, plan, number, out)
            for name in out.keys() - sample.views.keys():
                for copy in out[name]:
                    copy.zero_()
            yield sample

    def _room(self, job: Job) -> Views:
        """Memory for the views of a batch: that of its slot, which is kept, or else new."""
        kept = self._slots.get(job.slot)
        if kept is None or any(len(copies[0]) < len(job.rows) for copies in kept.values()):
            kept = {name: [_empty(len(job.rows), zero) for zero in zeros] for name, zeros in self.zeros.items()}
            if job.slot != NO_SLOT:
                self._slots[job.slot] = kept
        return {name: [copy[: len(job.rows)] for copy in copies] for name, copies in kept.items()}


def _empty(batch: int, like: Tensor) -> Tensor:
    if torch.utils.data.get_worker_info() is None:
        return new_memory((batch, *like.shape), like.dtype)
    return shared_empty(batch, like)


def counter() -> Any:
    """A number that workers share, at first 0."""
    return mp.get_context().RawValue("Q", 0)


def end_when(over: Any) -> None:
    """Tells a worker, in its process, which value says that its loader is being shut down."""
    global _over
    _over = over


def end_if_over() -> None:
    """Ends a worker whose loader is being shut down, between two samples: else its whole batch is waited for."""
    if _over is not None and _over.value:
        os._exit(0)
