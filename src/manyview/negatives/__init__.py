"""Against whom: where negatives come from. In your own loop, in-batch negatives are `Negatives(z, ids, ids)`."""

from manyview.contract import Negatives
from manyview.negatives.against import NEGATIVES, Against
from manyview.negatives.bank import MemoryBank
from manyview.negatives.queue import Queue

__all__ = ["NEGATIVES", "Against", "MemoryBank", "Negatives", "Queue"]
