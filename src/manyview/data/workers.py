"""The loader's worker processes: they read samples, prepare their views and join them."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.core.bounds import MOST_WORKERS, AtLeast, AtMost, check_bounds
from manyview.core.errors import UserError
from manyview.core.parallel import available
from manyview.core.sample import Sample, Views
from manyview.data.dataset import Dataset, read
from manyview.data.decoded import Decoded, local_processes, some_samples

PATIENCE = 600  # seconds without an image from any worker, after which they hang
SHARED_MEMORY = "/dev/shm"  # where workers put their batches
IN_USE = 2  # batches that are neither a worker's nor on their way any more
PREFETCH = 2  # batches that each worker is ahead
GRACE = 600  # seconds that a worker goes on after it was told to end: longer than any step takes
MORE_ROOM = "docker run --shm-size 4g"
_over: Any = None
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


def start_workers(reader: Reader, rows: EpochRows, batch: int, workers: int | None, *, pinned: bool) -> DataLoader[Any]:
    """Starts worker processes that stay for all epochs, for batches of so many samples; read them by `patiently`.

    They know nothing of the loader, so that one that nobody needs is gone at once, and its workers with it.
    """
    collate = Collate(reader)
    workers = fitting_workers(workers, batch * sum(zero.nbytes for copies in collate.zeros.values() for zero in copies))
    over = mp.get_context().RawValue("b", 0)  # whether the loader itself is being shut down
    loader = DataLoader(
        reader,
        batch_sampler=rows,
        num_workers=workers,
        collate_fn=collate,
        timeout=PATIENCE if workers else 0,
        persistent_workers=workers > 0,
        prefetch_factor=PREFETCH if workers else None,
        pin_memory=pinned,
        worker_init_fn=partial(_outlive_signals, over),
        generator=torch.Generator(),  # the workers' seeds are not to be drawn from what training draws from
    )
    weakref.finalize(loader, partial(setattr, over, "value", 1))
    return loader


def usual_workers() -> int:
    """One worker for each core that this process may use."""
    return max(1, available() // local_processes())


def fitting_workers(workers: int | None, batch: int) -> int:
    """So many workers, one a core if nobody says, but no more than can put batches of so many bytes into shared memory.

    Docker gives a container 64 MB of it, and a batch that finds no room would be waited for in vain. A run that goes on
    where there are fewer cores starts fewer.
    """
    check_bounds("workers", workers, [AtLeast(0), AtMost(MOST_WORKERS)])
    workers = usual_workers() if workers is None else workers
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    if workers > (most := max(16, 4 * available())):
        if first:
            said = f"{workers} workers are many for {available()} cores: {most} are started"
            warnings.warn(f"{said}; --workers N sets how many", stacklevel=2)
        workers = most
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free // local_processes()
    except OSError:  # a system that has it elsewhere
        return workers
    fitting = min(workers, max(0, free // max(1, batch) - IN_USE) // PREFETCH)
    if fitting < workers and first:
        room = f"{SHARED_MEMORY} has {free / 1e6:,.0f} MB free, and a batch takes {batch / 1e6:,.0f} MB"
        warnings.warn(f"{room}: {fitting} of {workers} workers are started; {MORE_ROOM} gives more", stacklevel=2)
    return fitting


def patiently(loader: DataLoader[Any], read: Any) -> Iterator[Any]:
    """What workers give, in order; says so where nothing comes any more.

    read  counts the images that any of them has read, in shared memory (`counter`)
    """
    stream: Iterator[Any] | None = None
    while True:
        before = read.value
        try:
            stream = iter(loader) if stream is None else stream
            batch = next(stream)
        except StopIteration:
            return
        except SharedMemoryFull:
            why = f"{SHARED_MEMORY} is full, where workers put their batches; give --workers 0, or {MORE_ROOM}"
            raise UserError("workers", why) from None
        except RuntimeError as error:
            if not str(error).startswith("DataLoader timed out"):  # for which torch has no class
                raise
            if stream is None or read.value == before:
                hangs = f"no image came in {loader.timeout:g} s: does the disk answer?"
                raise UserError("workers", f"{hangs} --workers 0 reads without workers") from None
            continue
        yield batch


def counter() -> Any:
    """A number that workers share, at first 0."""
    return mp.get_context().RawValue("Q", 0)


def shared(tensor: Tensor) -> Tensor:
    """Puts what a worker has made into shared memory: if that is full, here, where it is an error that is passed on.

    Otherwise a thread of the worker's queue would do it, lose the batch, and leave everybody waiting.
    """
    if torch.utils.data.get_worker_info() is None:
        return tensor
    try:
        tensor.share_memory_()
    except RuntimeError as error:
        raise SharedMemoryFull(str(error)) from None
    return tensor


class SharedMemoryFull(RuntimeError):
    """A worker found no room for its batch."""


def lost_worker(error: BaseException) -> bool:
    """Tells whether an error says that a worker is gone.

    torch says so while anything is being done, by a signal; what was on its way from the worker may be torn before.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")  # for which torch has no class
    places = {frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)}
    return isinstance(error, ConnectionError | EOFError) and DataLoader.__module__ in places


def end_when(over: Any) -> None:
    """Tells a worker, in its process, which value says that its loader is being shut down."""
    global _over
    _over = over


def end_if_over() -> None:
    """Ends a worker whose loader is being shut down, between two samples: else its whole batch is waited for."""
    if _over is not None and _over.value:
        os._exit(0)


def _outlive_signals(over: Any, _: int) -> None:
    """Lets a worker outlive a signal to the whole job: training ends after its step, for which it needs its workers."""
    for ignored in ("SIGINT", "SIGHUP"):
        if hasattr(signal, ignored):
            signal.signal(getattr(signal, ignored), signal.SIG_IGN)
    end_when(over)
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

    def __init__(
        self,
        dataset: Dataset | Decoded,
        pipeline: Pipeline,
        seed: int,
        colour: bool,
        examples: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.dataset, self.pipeline, self.seed, self.colour = dataset, pipeline, seed, colour
        self.examples = dict(examples or {})  # of modalities that no sample may have
        self.read = counter()
        used = set(pipeline.sources(dataset.modalities).values())
        self.modalities = tuple(name for name in dataset.modalities if name in used)

    def __getitem__(self, where: tuple[int, int]) -> Prepared:
        epoch, row = where
        unreadable: dict[int, str] = {}
        for step in range(min(IN_A_ROW, len(self.dataset))):
            end_if_over()
            index = (row + step) % len(self.dataset)
            sample = read(self.dataset, index)
            self.read.value += 1
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
        unmet = Sample(0, 0, {name: reader.examples[name] for name in reader.modalities if name in reader.examples})
        for sample in (*some_samples(reader.dataset), unmet):
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
            shared(torch.tensor([getattr(sample, which) for sample in samples], dtype=torch.int64))
            for which in ("id", "row")
        )
        views = {
            name: [self._joined(samples, name, k) for k in range(len(copies))] for name, copies in self.zeros.items()
        }
        present = {
            name: shared(torch.tensor([name in sample.modalities for sample in samples], dtype=torch.bool))
            for name in self.modalities
        }
        return Collated(ids, rows, views, present, unreadable)

    def _joined(self, samples: Sequence[Prepared], name: str, copy: int) -> Tensor:
        zero = self.zeros[name][copy]
        rows = [sample.views[name][copy] if name in sample.views else zero for sample in samples]
        return shared(torch.stack(rows) if rows else zero[None][:0].clone())
