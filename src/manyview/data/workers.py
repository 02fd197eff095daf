"""The loader's worker processes: they read samples, prepare their views and join them."""

from __future__ import annotations

import os
import signal
import traceback
import weakref
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.core.parallel import available
from manyview.core.sample import Sample, Views
from manyview.data.dataset import Dataset, read
from manyview.data.decoded import Decoded, local_processes, some_samples

GRACE = 600  # seconds that a worker goes on after it was told to end: longer than any step takes
IN_A_ROW = 100  # so many unreadable samples in a row are no accident


class Pipeline(Protocol):
    """What the loader asks of a view pipeline (`manyview.views.ViewPipeline`, or one's own)."""

    def sources(self, modalities: Iterable[str]) -> dict[str, str]: ...
    def at_once(self, images: Tensor) -> bool: ...
    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int, epoch: int) -> Views: ...
    def prepare(self, raw: Mapping[str, Tensor], id: int, *, seed: int, epoch: int, colour: bool) -> Views: ...
    def finish(self, prepared: Views, ids: Tensor, *, seed: int, epoch: int, colour: bool) -> Views: ...


EpochRows = list[list[tuple[int, int]]]
"""The batches of the epoch under way as workers get them: rows, each with its epoch."""


def start_workers(reader: Reader, rows: EpochRows, workers: int | None, *, pinned: bool) -> DataLoader[Any]:
    """Starts worker processes that stay for all epochs; one a core if nobody says how many.

    They know nothing of the loader, so that one that nobody needs is gone at once, and its workers with it.
    """
    workers = usual_workers() if workers is None else workers
    over = mp.get_context().RawValue("b", 0)  # whether the loader itself is being shut down
    loader = DataLoader(
        reader,
        batch_sampler=rows,
        num_workers=workers,
        collate_fn=Collate(reader),
        persistent_workers=workers > 0,
        pin_memory=pinned,
        worker_init_fn=partial(_outlive_signals, over),
        generator=torch.Generator(),  # the workers' seeds are not to be drawn from what training draws from
    )
    weakref.finalize(loader, partial(setattr, over, "value", 1))
    return loader


def usual_workers() -> int:
    """One worker for each core that this process may use."""
    return max(1, available() // local_processes())


def lost_worker(error: BaseException) -> bool:
    """Tells whether an error says that a worker is gone.

    torch says so while anything is being done, by a signal; what was on its way from the worker may be torn before.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")
    places = {frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)}
    return isinstance(error, ConnectionError | EOFError) and DataLoader.__module__ in places


def _outlive_signals(over: Any, _: int) -> None:
    """Lets a worker outlive a signal to the whole job: training ends after its step, for which it needs its workers."""
    for ignored in ("SIGINT", "SIGHUP"):
        if hasattr(signal, ignored):
            signal.signal(getattr(signal, ignored), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0) if over.value else signal.alarm(GRACE))


class Prepared(NamedTuple):
    """One sample as a worker hands it on; `row` is -1 if none could be read."""

    id: int
    row: int
    modalities: frozenset[str]  # those that the sample has
    views: Views
    unreadable: dict[int, str]  # the rows that were tried before, and why not


class Reader(torch.utils.data.Dataset[Prepared]):
    """Reads one sample, or the next one that can be read, and prepares its views."""

    def __init__(self, dataset: Dataset | Decoded, pipeline: Pipeline, seed: int, colour: bool) -> None:
        self.dataset, self.pipeline, self.seed, self.colour = dataset, pipeline, seed, colour
        used = set(pipeline.sources(dataset.modalities).values())
        self.modalities = tuple(name for name in dataset.modalities if name in used)

    def __getitem__(self, where: tuple[int, int]) -> Prepared:
        epoch, row = where
        unreadable: dict[int, str] = {}
        for step in range(min(IN_A_ROW, len(self.dataset))):
            index = (row + step) % len(self.dataset)
            sample = read(self.dataset, index)
            if isinstance(sample, str):
                unreadable[index] = sample
                continue
            views = self.prepared(sample, epoch)
            return Prepared(sample.id, sample.index, frozenset(sample.modalities), views, unreadable)
        return Prepared(0, -1, frozenset(), {}, unreadable)

    def prepared(self, sample: Sample, epoch: int) -> Views:
        there = {name: sample.modalities[name] for name in self.modalities if name in sample.modalities}
        return self.pipeline.prepare(there, sample.id, seed=self.seed, epoch=epoch, colour=self.colour)


class Collated(NamedTuple):
    """The samples of a batch, joined."""

    ids: Tensor
    rows: Tensor
    views: Views
    present: dict[str, Tensor]
    unreadable: dict[int, str]


class Collate:
    """Joins samples. What a sample lacks is zero, whether or not another sample of the batch has it."""

    def __init__(self, reader: Reader) -> None:
        self.modalities: tuple[str, ...] = ()
        self.zeros: Views = {}
        for sample in some_samples(reader.dataset):
            if sample.modalities.keys() - set(self.modalities):
                self.modalities = (*self.modalities, *sample.modalities)
                made = reader.prepared(sample, epoch=0)
                self.zeros |= {name: [torch.zeros_like(copy) for copy in copies] for name, copies in made.items()}
        self.modalities = tuple(name for name in reader.dataset.modalities if name in self.modalities)
        ordered = dict.fromkeys((*self.modalities, *self.zeros))
        self.zeros = {name: self.zeros[name] for name in ordered if name in self.zeros}

    def __call__(self, samples: Sequence[Prepared]) -> Collated:
        """Joins samples to a batch, which is empty if one of them, and all after it, could not be read."""
        unreadable = {row: reason for sample in samples for row, reason in sample.unreadable.items()}
        samples = samples if all(sample.row >= 0 for sample in samples) else []
        ids, rows = (
            torch.tensor([getattr(sample, which) for sample in samples], dtype=torch.int64) for which in ("id", "row")
        )
        views = {
            name: [self._joined(samples, name, k) for k in range(len(copies))] for name, copies in self.zeros.items()
        }
        present = {
            name: torch.tensor([name in sample.modalities for sample in samples], dtype=torch.bool)
            for name in self.modalities
        }
        return Collated(ids, rows, views, present, unreadable)

    def _joined(self, samples: Sequence[Prepared], name: str, copy: int) -> Tensor:
        zero = self.zeros[name][copy]
        rows = [sample.views[name][copy] if name in sample.views else zero for sample in samples]
        return torch.stack(rows) if rows else zero[None][:0]
