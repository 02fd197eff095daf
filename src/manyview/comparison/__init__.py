"""WHICH IS BETTER: several methods on the same images, from the same weights, in the same order."""

from manyview.comparison.outcome import Outcome, Row

__all__ = ["Outcome", "Row"]
