"""Settings from a line of flags, as the tests of this folder write them."""

from __future__ import annotations

from manyview.config.config import Config
from manyview.config.flags import read_flags
from manyview.config.keys import Flat
from manyview.config.resolve import resolve

DATA: Flat = {"data.name": "photos"}


def flags(text: str, recipe: Flat | None = None) -> Config:
    return resolve(DATA if recipe is None else recipe, read_flags(text.split()))
