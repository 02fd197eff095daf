"""Shared memory that workers put their batches into, again and again.

New pages of shared memory take a worker longer than all else that it does with a view: a third of a millisecond for one
of 224 px. So every worker keeps a few slots, each for a batch. The process that asks for a batch says which slot it
goes into; one is free again once nobody there holds any part of what came in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from manyview.core.sample import Views

NO_SLOT = -1
Row = tuple[int, int]
"""An epoch, and a row of the data set."""
EpochRows = list[list[Row]]
"""The batches of the epoch under way."""


class Job(NamedTuple):
    """The samples of a batch that a worker reads, and the slot that it puts them into."""

    rows: Sequence[Row]
    slot: int = NO_SLOT


class Dispatcher:
    """Gives out the batches of an epoch as jobs, to workers in turn, each with a slot of its worker if one is free.

    One epoch at a time: what an earlier one has left under way is thrown away before the next begins.
    """

    def __init__(self, rows: EpochRows, workers: int, slots: int) -> None:
        self.rows, self.workers, self.slots = rows, workers, slots
        self._under_way: set[int] = set()
        self._held: dict[int, list[StorageWeakRef]] = {}

    def __iter__(self) -> Iterator[Job]:
        self._under_way.clear()
        for number, rows in enumerate(self.rows):
            slot = self._free(number % self.workers) if self.workers else NO_SLOT
            self._under_way.add(slot)
            yield Job(rows, slot)

    def __len__(self) -> int:
        return len(self.rows)

    def received(self, slot: int, views: Views) -> None:
        """Notes that a batch came in a slot."""
        if slot != NO_SLOT:
            self._under_way.discard(slot)
            self._held[slot] = [StorageWeakRef(copy.untyped_storage()) for copies in views.values() for copy in copies]

    def _free(self, worker: int) -> int:
        own = range(worker * self.slots, (worker + 1) * self.slots)
        for slot in own:
            if slot in self._held and all(memory.expired() for memory in self._held[slot]):
                del self._held[slot]
        return next((slot for slot in own if slot not in self._held and slot not in self._under_way), NO_SLOT)


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


def shared_empty(batch: int, like: Tensor) -> Tensor:
    """(batch, ...) of any content, in shared memory, no page of which is touched yet."""
    try:
        storage: Any = torch.UntypedStorage._new_shared(max(1, batch * like.nbytes))
    except RuntimeError as error:
        raise SharedMemoryFull(str(error)) from None
    empty: Any = torch.empty(0, dtype=like.dtype)
    placed: Tensor = empty.set_(storage, 0, (batch, *like.shape))
    return placed
