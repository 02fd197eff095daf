"""WHICH IS BETTER: compares methods on the same images, from the same weights, in the same order."""

from manyview.comparison.outcome import MethodOutcome, Outcome

__all__ = ["MethodOutcome", "Outcome"]
