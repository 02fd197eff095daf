"""Against whom: where negatives come from. In your own loop, in-batch negatives are `Negatives(z, ids, ids)`."""

from manyview.core.contract import Negatives
from manyview.memories.bank import MemoryBank
from manyview.memories.memory import NEGATIVES, Against
from manyview.memories.queue import Queue

__all__ = ["NEGATIVES", "Against", "MemoryBank", "Negatives", "Queue"]
