"""Against whom: where negatives come from besides the batch. In-batch negatives are `Negatives(z, ids, ids)`."""

from manyview.contract import Negatives
from manyview.negatives.bank import MemoryBank
from manyview.negatives.queue import Queue

__all__ = ["MemoryBank", "Negatives", "Queue"]
