"""Flags: `--key value`, `--key=value`, and `--key` alone for true."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from manyview.config.keys import Flat, flag_name
from manyview.config.sections import flat
from manyview.config.values import SWITCH
from manyview.core.errors import UserError


def read_flags(arguments: Sequence[str]) -> Flat:
    """Settings by their keys; the values still as texts."""
    found: Flat = {}
    for key, value in pairs(arguments):
        if key is None:
            example = f"; for data write --data {value}" if not found else ""
            raise UserError(None, f"expected --key value, got {value!r}{example}")
        put(found, key, value)
    return found


def put(found: Flat, key: str, value: str | bool) -> None:
    """Adds a flag, by its whole key; refuses one that is there already."""
    ((whole, value),) = flat({key: value}).items()
    if whole in found:
        raise UserError(flag_name(whole), "is given twice; leave one out")
    found[whole] = value


def pairs(arguments: Sequence[str], switches: Collection[str] = ()) -> Iterator[tuple[str | None, str | bool]]:
    """Key and text of each flag, True for the text of one that stands alone; None and the word where there is no flag.

    switches: keys whose value can only be true or false, so that another word after them is none of theirs.
    """
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            yield None, word
            continue
        name, equals, text = word[2:].partition("=")
        key = name.replace("-", "_")
        alone = not rest or rest[0].startswith("--") or (key in switches and rest[0].lower() not in SWITCH)
        yield key, text if equals else True if alone else rest.pop(0)
