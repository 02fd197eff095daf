"""SHOWN TO A PERSON: one self-contained HTML page about one run or several."""

from manyview.report.page import after_training, write

__all__ = ["after_training", "write"]
