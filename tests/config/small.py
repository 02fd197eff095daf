"""Settings from a line of flags, as the tests of this folder write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manyview.cli.arguments import parsed
from manyview.config.config import Config
from manyview.config.keys import Flat
from manyview.config.resolve import resolve

DATA: Flat = {"data.name": "photos"}


def anything(**settings: Any) -> int:
    """A command that takes any setting."""
    return 0


def read_flags(words: Sequence[str]) -> Flat:
    return parsed(anything, words)


def flags(text: str, recipe: Flat | None = None) -> Config:
    return resolve(DATA if recipe is None else recipe, read_flags(text.split()))
