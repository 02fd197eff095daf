"""WHICH IS BETTER: several methods on the same images, from the same weights, in the same order, at the same cost."""

from manyview.compare.outcome import Outcome, Row
from manyview.compare.race import compare

__all__ = ["Outcome", "Row", "compare"]
