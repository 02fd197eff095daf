"""Against whom: where negatives come from. In your own loop, in-batch negatives are `Negatives(z, ids, ids)`."""

from manyview.core.negatives import Negatives
from manyview.memories.bank import MemoryBank
from manyview.memories.memory import MEMORIES, Memory
from manyview.memories.queue import Queue

__all__ = ["MEMORIES", "Memory", "MemoryBank", "Negatives", "Queue"]
