"""Keeps decoded samples in memory that all workers of a loader share, so that later epochs need not decode them again.

A sample is held as it was read, a JPEG at the scale that its crops asked for: what comes from here is to the bit what
would be read anew. If an epoch's crops ask for another scale, that is read, and held beside the first. So views do not
depend on what is held, and neither on how many processes read it nor on where a run was resumed.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from math import prod
from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data.dataset import Dataset, Shrink, read
from manyview.data.decoded import default_limit

SCALES = (1, 2, 4, 8)  # by which JPEG files are decoded smaller
ALIGNED = 64  # bytes
NUMBER = 8  # bytes


class Cache:
    """Decoded samples of a data set, as many as fit; whoever reads one first puts it there.

    limit  bytes that they may take; None: a quarter of the machine's memory, which all caches of a process share

    The memory begins with the bytes in use and a table: of each row height and width of the whole picture, and where
    the sample lies at each scale, 0: nowhere. The place is written last, so that a process which is killed half-way
    leaves nothing that anyone would read. What is held stays until nobody needs the cache any more.
    """

    def __init__(self, rows: int, limit: int | None = None) -> None:
        self.limit = default_limit() if limit is None else limit
        self._limit_of_all = max(self.limit, default_limit())
        self._columns = 2 + len(SCALES)
        self._rows, self._start = rows, _aligned(NUMBER * (1 + rows * self._columns))
        self._memory, self._all = SharedMemory(self._start + self.limit), _all_caches()
        weakref.finalize(self, _give_back, os.getpid(), self._memory, self._all).atexit = False

    def __len__(self) -> int:
        """How many samples are held."""
        return int(self._table()[:, 2:].any(1).sum())

    @property
    def bytes(self) -> int:
        """How much of its memory is in use."""
        return int(self._memory.numbers(1))

    def read(self, dataset: Dataset, row: int, modalities: Sequence[str], shrink: Shrink | None) -> Sample | str:
        """A sample with these modalities, out of memory or else of its data set, or why it cannot be read."""
        asked: list[int] = []

        def noted(height: int, width: int) -> int:
            assert shrink is not None
            asked.append(shrink(height, width))
            return asked[-1]

        if (held := self.get(row, shrink)) is not None:
            return held
        found = read(dataset, row, None if shrink is None else noted)
        if isinstance(found, str):
            return found
        used = {name: found.modalities[name] for name in modalities if name in found.modalities}
        sample = Sample(found.id, found.index, used, size=found.size)
        scaled = asked and found.size is not None  # anything else is the same at each scale
        self.put(row, sample, asked[-1:] if scaled else SCALES)
        return sample

    def get(self, row: int, shrink: Shrink | None = None) -> Sample | None:
        """A sample at the scale that `shrink` asks for, if it is held; without targets."""
        height, width, *places = self._table()[row].tolist()
        place = places[SCALES.index(shrink(height, width)) if shrink is not None and height else 0]
        if not place:
            return None
        id, index, before, images = pickle.loads(memoryview(self._memory.map)[place:])
        modalities = {
            name: self._tensor(place - before + start, dtype, shape).permute(order)
            for name, start, dtype, shape, order in images
        }
        return Sample(id, index, modalities, size=(height, width) if height else None)

    def put(self, row: int, sample: Sample, scales: Sequence[int] = SCALES) -> bool:
        """Holds a sample for who asks for one of these scales; tells whether there was room."""
        orders = [_order(image) for image in sample.modalities.values()]
        dense = [image.permute(order) for image, order in zip(sample.modalities.values(), orders, strict=True)]
        *starts, before = accumulate((_aligned(image.nbytes) for image in dense), initial=0)
        told = [
            (name, start, image.dtype, tuple(image.shape), _inverse(order))
            for name, start, image, order in zip(sample.modalities, starts, dense, orders, strict=True)
        ]
        head = pickle.dumps((sample.id, sample.index, before, told))
        begin = self._room(before + _aligned(len(head)))
        if begin is None:
            return False
        place = begin + before
        pieces = [(begin + start, _bytes(image)) for start, image in zip(starts, dense, strict=True)]
        if not self._memory.write([*pieces, (place, head)]):
            return False
        entry = self._table()[row]
        entry[:2] = torch.tensor(sample.size or (0, 0))
        for scale in scales:
            entry[2 + SCALES.index(scale)] = place
        return True

    def _table(self) -> Tensor:
        return self._memory.numbers(1 + self._rows * self._columns)[1:].view(self._rows, self._columns)

    def _tensor(self, start: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        return torch.frombuffer(self._memory.map, dtype=dtype, count=prod(shape), offset=start).view(*shape)

    def _room(self, size: int) -> int | None:
        """Takes so many bytes, and gives the place where they begin; None if there are not so many."""
        with self._all.locked():
            own, every = self._memory.numbers(1), self._all.numbers(1)
            if own + size > self.limit or every + size > self._limit_of_all:
                return None
            begin = self._start + int(own)
            own += size
            every += size
            return begin


def make_cache(rows: int, limit: int | None = None) -> Cache | None:
    """A cache of a data set with so many rows; None if nothing may be held, or the system has no such memory."""
    if limit == 0 or not hasattr(os, "memfd_create"):
        return None
    try:
        return Cache(rows, limit)
    except OSError:
        return None


class SharedMemory:
    """Memory that is shared with worker processes, at first zeros; it takes no pages before they are used.

    It has no name, and so no place in `/dev/shm`, of which Docker gives little.
    """

    def __init__(self, size: int) -> None:
        file = os.memfd_create("manyview")
        os.ftruncate(file, size)
        self._open(file, size)

    def _open(self, file: int, size: int) -> None:
        self.file, self.size = file, size
        weakref.finalize(self, os.close, file)
        self.map = mmap.mmap(file, size)

    def __getstate__(self) -> tuple[Any, int]:
        """What a worker gets that is not forked."""
        return reduction.DupFd(self.file), self.size

    def __setstate__(self, state: tuple[Any, int]) -> None:
        self._open(state[0].detach(), state[1])

    def write(self, pieces: Sequence[tuple[int, Any]]) -> bool:
        """Writes bytes where they belong; tells whether the system had pages for them.

        Of the system one gets the pages for a photo four times as fast as by touching one after another.
        """
        try:
            return all(os.pwrite(self.file, piece, place) == len(piece) for place, piece in pieces)
        except OSError:
            return False

    def numbers(self, count: int) -> Tensor:
        """The whole numbers that it begins with."""
        return torch.frombuffer(self.map, dtype=torch.int64, count=count)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out for a while; the system lets them in if this one is killed."""
        import fcntl  # which is not everywhere

        fcntl.lockf(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self.file, fcntl.LOCK_UN)


@cache
def _all_caches() -> SharedMemory:
    """A number: the bytes in use of all caches of this process and its workers."""
    return SharedMemory(NUMBER)


def _give_back(process: int, memory: SharedMemory, every: SharedMemory) -> None:
    if os.getpid() == process:  # a worker has a copy of the cache
        with every.locked():
            every.numbers(1).sub_(memory.numbers(1))


def _bytes(image: Tensor) -> Any:
    return image.contiguous().view(-1).view(torch.uint8).numpy()


def _order(image: Tensor) -> list[int]:
    """Its dimensions as they lie in memory, largest stride first."""
    return sorted(range(image.dim()), key=lambda axis: (-image.stride()[axis], axis))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(axis) for axis in range(len(order))]


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
