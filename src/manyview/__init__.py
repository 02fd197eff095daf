"""manyview: image representations without labels, from many views and many positives."""

from manyview import distributed, losses, negatives, pairs
from manyview.contract import Negatives, Triple
from manyview.pairs import contrast

__version__ = "0.1.0"
__all__ = ["Negatives", "Triple", "__version__", "contrast", "distributed", "losses", "negatives", "pairs"]
