"""The columns of a file of embeddings: their names, and their rows piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

COLUMNS = ("path", "id", "label", "vector")
PROJECTION = "projection"  # a further column, of embeddings that can be compared across views

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
"""Columns by name: path (n,) bytes, id (n,), label (n,); where they are read also vector (n, d), and a projection."""


@dataclass(frozen=True)
class Pieces:
    """The rows of one array, piece by piece; the first says what they are like."""

    first: Array
    every: Iterator[Array]

    @classmethod
    def of(cls, pieces: Iterator[Array]) -> Pieces:
        first = next(pieces)
        return cls(first, chain([first], pieces))
