"""Values of settings: texts of flags and values of recipes, checked against type and bounds."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

from jsonargparse import ArgumentError, ArgumentParser

from manyview.config.keys import REQUIRED, Flat, Key, flag_name, unknown
from manyview.core.bounds import check_bounds
from manyview.core.errors import UserError

SWITCH = {"true": True, "yes": True, "false": False, "no": False}


def typed(keys: Mapping[str, Key], recipe: Flat, given: Flat) -> Flat:
    """The values of all keys, checked; texts of flags are read as YAML reads them. Others than the keys are refused."""
    for key in (*recipe, *given):
        if key not in keys:
            raise UserError(key, unknown(key, keys))
    found = {}
    for key, each in keys.items():
        value = given.get(key, recipe.get(key, each.default))
        if value is REQUIRED:
            raise UserError(key, f"is needed; give --{flag_name(key)}")
        if value is True and key in given and bool not in (each.type, *typing.get_args(each.type)):
            raise UserError(key, f"expected {type_name(each.type)}, got none; write --{flag_name(key)} VALUE")
        found[key] = _one(key, value, each.type, text=isinstance(value, str) and key in given)
        check_bounds(key, found[key], each.bounds)
    return found


def _one(key: str, value: Any, hint: Any, *, text: bool) -> Any:
    """A value as its type has it."""
    parser = _parser(hint)
    try:
        given = parser.parse_args([f"--it={_as_list(value, hint)}"]) if text else parser.parse_object({"it": value})
        if given.it is None and type(None) not in typing.get_args(hint):
            raise TypeError
    except (ArgumentError, TypeError, ValueError):
        raise UserError(key, f"expected {type_name(hint)}, got {value!r}") from None
    return given.it


@cache
def _parser(hint: Any) -> ArgumentParser:
    """Returns a parser for one value; building one for all settings would be quadratic."""
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--it", type=hint)
    return parser


def _as_list(text: str, hint: Any) -> str:
    """`1,20,200` and a single 7 are lists where a list is wanted; names in it stay texts, whatever they look like."""
    lists = [each for each in (hint, *typing.get_args(hint)) if typing.get_origin(each) in (tuple, list, Sequence)]
    if not lists or text.startswith(("[", "null")):
        return text
    names = str in typing.get_args(lists[0])
    return json.dumps([each.strip() for each in text.split(",") if each.strip()]) if names else f"[{text}]"


def type_name(hint: Any) -> str:
    """A type in words."""
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if hint in words:
        return words[hint]
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, within))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(each) for each in within if each is not int or float not in within)
    if origin in (tuple, list, Sequence):
        many = f" of {len(within)}" if origin is tuple and Ellipsis not in within else ""
        return f"a list{many}, each {type_name(within[0])}"
    return "a table of settings"


def choices(hint: Any) -> list[str]:
    """All texts that a type allows, where they are few."""
    if hint in (bool, type(None)):
        return ["true", "false"] if hint is bool else ["null"]
    if typing.get_origin(hint) is Literal:
        return [str(each) for each in typing.get_args(hint)]
    parts = [choices(each) for each in typing.get_args(hint)]
    return [text for each in parts for text in each] if all(parts) else []


def shown(value: Any) -> str:
    """A value as one would type it."""
    if value is REQUIRED or value is None:
        return "needed" if value is REQUIRED else "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
