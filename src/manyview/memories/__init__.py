"""AGAINST WHOM: the batch, a queue or a bank; and what else is kept between steps.

In your own loop, in-batch negatives are `Negatives(z, ids, ids)`.
"""

from collections.abc import Callable

from manyview.core.negatives import Negatives
from manyview.memories.bank import BankMemory, MemoryBank, bank
from manyview.memories.centre import Centre
from manyview.memories.memory import Memory, batch
from manyview.memories.queue import Queue, QueueMemory, queue

MEMORIES: dict[str, Callable[..., Memory]] = {"batch": batch, "queue": queue, "bank": bank}

__all__ = [
    "MEMORIES",
    "BankMemory",
    "Centre",
    "Memory",
    "MemoryBank",
    "Negatives",
    "Queue",
    "QueueMemory",
    "bank",
    "batch",
    "queue",
]
