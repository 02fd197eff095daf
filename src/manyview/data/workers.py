"""The loader's worker processes: how many are started, and how they end."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
import warnings
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, cast

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

from manyview.core.bounds import MOST_WORKERS, AtLeast, AtMost, check_bounds
from manyview.core.errors import UserError
from manyview.core.parallel import available
from manyview.data.decoded import local_processes
from manyview.data.reader import Batches, Reader, end_when
from manyview.data.slots import Dispatcher, EpochRows, SharedMemoryFull

PATIENCE = 600  # seconds without an image from any worker, after which they hang
SHARED_MEMORY = "/dev/shm"  # where workers put their batches
PREFETCH = 2  # batches that each worker is ahead
LITTLE = 1 << 16  # bytes that ids and the like of a batch take beside its views, each in pages of its own
GRACE = 600  # seconds that a worker goes on after it was told to end: longer than any step takes
MORE_ROOM = "docker run --shm-size 4g"


class Stream(NamedTuple):
    """The loader of torch that runs the workers, and what gives out their batches."""

    loader: DataLoader[Any]
    dispatcher: Dispatcher


def start_workers(reader: Reader, rows: EpochRows, batch: int, workers: int | None, *, pinned: bool) -> Stream:
    """Starts worker processes that stay for all epochs, for batches of so many samples; read them by `patiently`.

    They know nothing of the loader, so that one that nobody needs is gone at once, and its workers with it.
    """
    batches = Batches(reader)
    workers = fitting_workers(workers, batch * batches.bytes)
    dispatcher = Dispatcher(rows, workers, slots_each(workers))
    over = mp.get_context().RawValue("b", 0)  # whether the loader itself is being shut down
    loader = DataLoader(
        batches,
        batch_sampler=cast(Any, dispatcher),
        num_workers=workers,
        collate_fn=_unchanged,
        timeout=PATIENCE if workers else 0,
        persistent_workers=workers > 0,
        prefetch_factor=PREFETCH if workers else None,
        pin_memory=pinned,
        worker_init_fn=partial(_outlive_signals, over),
        generator=torch.Generator(),  # the workers' seeds are not to be drawn from what training draws from
    )
    weakref.finalize(loader, partial(setattr, over, "value", 1))
    return Stream(loader, dispatcher)


def usual_workers() -> int:
    """One worker for each core that this process may use."""
    return max(1, available() // local_processes())


def slots_each(workers: int) -> int:
    """Batches of a worker that shared memory has room for, so that one is free whenever the worker is asked for more.

    One is in use beside those ahead. Of a single worker's that is the one before the batch that has just come; of
    several workers' each other one is another's.
    """
    return PREFETCH + (2 if workers == 1 else 1)


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
    batches = free // (batch + LITTLE)
    fitting = max(count for count in range(workers + 1) if count * slots_each(count) <= batches)
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


def lost_worker(error: BaseException) -> bool:
    """Tells whether an error says that a worker is gone.

    torch says so while anything is being done, by a signal; what was on its way from the worker may be torn before.
    """
    if isinstance(error, RuntimeError):
        return str(error).startswith("DataLoader worker")  # for which torch has no class
    places = {frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)}
    return isinstance(error, ConnectionError | EOFError) and DataLoader.__module__ in places


def _outlive_signals(over: Any, _: int) -> None:
    """Lets a worker outlive a signal to the whole job: training ends after its step, for which it needs its workers."""
    for ignored in ("SIGINT", "SIGHUP"):
        if hasattr(signal, ignored):
            signal.signal(getattr(signal, ignored), signal.SIG_IGN)
    end_when(over)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0) if over.value else signal.alarm(GRACE))


def _unchanged(batch: Any) -> Any:
    return batch
