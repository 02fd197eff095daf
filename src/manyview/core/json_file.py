"""JSON of files that anybody may have edited, cut short or made up: read as a type, or refused in one line."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

from manyview.core.errors import UserError
from manyview.core.text import printable, reason

MAX_BYTES = 1 << 26  # of a file; ours have some thousands
LARGEST = 1e100  # number that is a measurement; squares and sums of larger ones are infinite
DIGITS = 20  # of a whole number; longer ones are floats, and may be infinite
WORDS = {int: "a whole number", float: "a finite number", str: "a text", list: "a list", tuple: "a list"}


def read_json(path: Path, kind: Any, *, remedy: str) -> Any:
    """Reads a file as a value of a type: dataclasses, lists, tuples, tables with texts as keys, `X | None`,
    `Literal`, `Any`.

    Keys that a dataclass does not have are passed over. What does not fit is one line that ends with the remedy.

    >>> read_json(folder / "plan.json", Plan, remedy="give another --out")
    """
    try:
        if not path.is_file():
            raise ValueError("it is no file")
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has {path.stat().st_size >> 20} MB")
        return as_type(parse_json(path.read_text(encoding="utf-8")), kind)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(None, f"{printable(str(path))} is damaged ({reason(error)}); {remedy}") from None


def parse_json(text: str) -> Any:
    """Parses JSON; what is none, or nests too deep, is a `ValueError`."""
    try:
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= DIGITS else float(digits))
    except RecursionError:
        raise ValueError("it nests too deep") from None


def as_type(value: Any, kind: Any, place: str = "it") -> Any:
    """Gives a parsed value as a type; a `ValueError` names the first place that does not fit."""
    origin, within = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        json.dumps(value, allow_nan=False)  # NaN and infinity are no JSON, and could not be written again
        return value
    if value is None and type(None) in within:
        return value
    if origin in (typing.Union, types.UnionType):
        return as_type(value, within[0], place)
    if origin is typing.Literal and value in within:
        return value
    if is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
        for name in needed:
            if name not in value:
                raise ValueError(f"{name} is missing")
        given = [each.name for each in fields(kind) if each.name in value]
        return kind(**{name: as_type(value[name], hints[name], name) for name in given})  # type: ignore[operator]
    if origin is dict and isinstance(value, dict):
        return {key: as_type(each, within[1], f"{place}[{key[:40]!r}]") for key, each in value.items()}
    if origin in (list, tuple) and isinstance(value, list):
        return origin(as_type(each, within[0], f"{place}[{number}]") for number, each in enumerate(value))
    if kind is float and type(value) in (int, float) and abs(value) <= LARGEST:
        return value
    if kind is not float and type(value) is kind:
        return value
    got = f"{value!r:.60}" if isinstance(value, str | int | float | None) else WORDS.get(type(value), "a table")
    raise ValueError(f"{place}: expected {WORDS.get(origin or kind, 'a table')}, got {got}")
