"""Settings read off the signature of any function: their keys, types and bounds, and values that fit them."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple

from jsonargparse import ArgumentError, ArgumentParser
from yaml import AliasToken, YAMLError, scan

from manyview.core.bounds import Bound, check_bounds
from manyview.core.errors import UserError, nearest

Flat = dict[str, Any]
"""Settings by their keys, such as `loss.temperature`."""

SIXTIES = re.compile(r"\d:\d")  # YAML reads 1:30 as 90
SHOWN = 200  # characters of a value that is refused
REQUIRED = inspect.Parameter.empty
PLAIN = (int, float, str, bool, type(None), Any, ...)  # types that a recipe can hold
ELSEWHERE = {
    "learning_rate": "optimizer.lr", "queue_size": "memory.size", "momentum": "optimizer.momentum, of sgd",
    **dict.fromkeys(("image_size", "img_size", "input_size", "crop_size", "resolution"), "augmentation.size"),
}  # fmt: skip


class Key(NamedTuple):
    """A setting: its type, default, bounds and meaning."""

    type: Any
    default: Any
    part: str = ""  # whose argument it is
    bounds: tuple[Bound, ...] = ()  # of a number
    about: str = ""  # what it means, where the signature says so


def keys_of(
    section: str,
    function: Callable[..., Any],
    *,
    hidden: Sequence[str] = (),
    defaults: Flat | None = None,
    part: str = "",
) -> dict[str, Key]:
    """Lists the keyword arguments that a recipe can hold, without the hidden ones, which the run gives."""
    hints = typing.get_type_hints(function, include_extras=True)
    keys: dict[str, Key] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not REQUIRED
        if by_keyword and name not in hidden:
            key = key_of(hints[name], (defaults or {}).get(name, parameter.default), part)
            keys |= {} if key.type is None else {f"{section}.{name}": key}
    return keys


def key_of(hint: Any, default: Any = REQUIRED, part: str = "") -> Key:
    """Makes a setting of a type with bounds and a meaning: `Annotated[int, AtLeast(1), "images a step"]`."""
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    bounds = tuple(each for each in extras if isinstance(each, Bound))
    about = next((each for each in extras if isinstance(each, str)), "")
    return Key(_settable(typing.get_args(hint)[0] if extras else hint), default, part, bounds, about)


def _settable(hint: Any) -> Any:
    """Removes from a type what a recipe cannot hold, such as a learnt temperature's tensor; None if nothing is left."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [each for each in within if _settable(each) is not None]
        return None if kept in ([], [type(None)]) else typing.Union[tuple(kept)]  # noqa: UP007
    if origin in (tuple, list, dict, Sequence):
        return hint if all(_settable(each) is not None for each in within) else None
    return hint if origin is Literal or hint in PLAIN else None


def unknown(key: str, keys: Mapping[str, Key]) -> str:
    """Explains that there is no such key, with the nearest that there is."""
    section, _, name = key.rpartition(".")
    there = {each.rpartition(".")[2]: keys[each].part for each in keys if section and each.startswith(f"{section}.")}
    part = next((each for each in there.values() if each), "")
    if not section and name in ELSEWHERE and any(each.startswith("optimizer.") for each in keys):
        near: str | None = ELSEWHERE[name]
    elif part:
        tail = nearest(name, there, cutoff=0.7)
        near = tail and f"{section}.{tail}"
    else:
        tails = {each.rpartition(".")[2]: each for each in keys}
        near = nearest(key, [*(each.partition(".")[0] for each in keys), *keys], cutoff=0.7)
        near = near or tails.get(nearest(name, tails, cutoff=0.7) or "")
    otherwise = f"{section} {part} takes {', '.join(there)}" if part else "`manyview show` lists all settings"
    return f"there is no such setting; {otherwise if near is None else f'did you mean {near!r}?'}"


def flag_name(key: str) -> str:
    """Returns the name of a key as a flag, without `--`; a part goes by its section's name."""
    return key.removesuffix(".name").replace("_", "-")


def typed(keys: Mapping[str, Key], recipe: Flat, given: Flat) -> Flat:
    """Checks and converts the values of all keys; flags are parsed as YAML. Other keys are refused."""
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
    """Converts a value to its type, or refuses it."""
    parser = _parser(hint)
    try:
        if text and typing.get_origin(hint) is dict and any(isinstance(each, AliasToken) for each in scan(value)):
            raise TypeError  # a few hundred bytes of aliases can make more than any memory holds
        given = parser.parse_args([f"--it={_as_list(value, hint)}"]) if text else parser.parse_object({"it": value})
        if given.it is None and type(None) not in typing.get_args(hint):
            raise TypeError
        found = given.it if isinstance(given.it, list | tuple) else [given.it]
        if isinstance(value, str) and SIXTIES.search(value) and any(isinstance(each, int | float) for each in found):
            raise TypeError
    except (ArgumentError, TypeError, ValueError, RecursionError, YAMLError):
        got = repr(value) if len(repr(value)) <= SHOWN else f"{repr(value)[:SHOWN]}..."
        raise UserError(key, f"expected {type_name(hint)}, got {got}") from None
    return given.it


@cache
def _parser(hint: Any) -> ArgumentParser:
    """Returns a parser for one value; building one for all settings would be quadratic."""
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--it", type=hint)
    return parser


def _as_list(text: str, hint: Any) -> str:
    """Writes `1,20,200` and a single 7 as YAML lists where a list is expected; in a list of names, items stay texts."""
    lists = [each for each in (hint, *typing.get_args(hint)) if typing.get_origin(each) in (tuple, list, Sequence)]
    if not lists or text.startswith(("[", "null")):
        return text
    names = str in typing.get_args(lists[0])
    return json.dumps([each.strip() for each in text.split(",") if each.strip()]) if names else f"[{text}]"


def type_name(hint: Any) -> str:
    """Describes a type in words."""
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if hint in words:
        return words[hint]
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ("one of " if len(within) > 1 else "") + ", ".join(map(str, within))
    if origin in (typing.Union, types.UnionType):
        *most, last = (type_name(each) for each in within if each is not int or float not in within)
        return " or ".join([", ".join(most), last] if most else [last])
    if origin in (tuple, list, Sequence):
        many = f" of {len(within)}" if origin is tuple and Ellipsis not in within else ""
        return f"a list{many}, each {type_name(within[0])}"
    if origin is dict and within[1] is not Any:
        return f"a table {{NAME: {type_name(within[1])}}}"
    return "a table of settings"


def choices(hint: Any) -> list[str]:
    """Lists all texts that a type allows, where they are few."""
    if hint in (bool, type(None)):
        return ["true", "false"] if hint is bool else ["null"]
    if typing.get_origin(hint) is Literal:
        return [str(each) for each in typing.get_args(hint)]
    parts = [choices(each) for each in typing.get_args(hint)]
    return [text for each in parts for text in each] if all(parts) else []


def shown(value: Any) -> str:
    """Writes a value as a user would type it."""
    if value is REQUIRED or value is None:
        return "needed" if value is REQUIRED else "-"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
