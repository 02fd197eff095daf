"""Settings of any function: which there are, read off its signature, and texts and values checked against its types."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from manyview.core.errors import UserError

Flat = dict[str, Any]
REQUIRED = inspect.Parameter.empty
ELSEWHERE = {"learning_rate": "optimizer.lr", "queue_size": "memory.size", "momentum": "optimizer.momentum, of sgd"}
PLAIN = (int, float, str, bool, type(None), Any, ...)  # types that a recipe can hold
SWITCH = {"true": True, "yes": True, "false": False, "no": False}


class Key(NamedTuple):
    """One setting."""

    type: Any
    default: Any
    part: str = ""  # whose argument it is


def keys_of(
    section: str,
    function: Callable[..., Any],
    *,
    hidden: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
    part: str = "",
) -> dict[str, Key]:
    """What a function can be given by keyword, but not what is hidden; the first positional ones are the run's."""
    hints, keys = typing.get_type_hints(function), {}
    for name, parameter in inspect.signature(function).parameters.items():
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not REQUIRED
        hint = _settable(hints[name]) if by_keyword and name not in hidden else None
        if hint is not None:
            default = (defaults or {}).get(name, parameter.default)
            keys[f"{section}.{name}"] = Key(hint, default, part)
    return keys


def _settable(hint: Any) -> Any:
    """A type without what a recipe cannot hold, such as a learnt temperature's tensor; None if nothing is left."""
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [each for each in within if _settable(each) is not None]
        return None if kept in ([], [type(None)]) else typing.Union[tuple(kept)]  # noqa: UP007
    if origin in (tuple, list, dict, Sequence):
        return hint if all(_settable(each) is not None for each in within) else None
    return hint if origin is Literal or hint in PLAIN else None


def unknown(key: str, keys: Mapping[str, Key]) -> str:
    section, _, name = key.rpartition(".")
    there = {each.rpartition(".")[2]: keys[each].part for each in keys if section and each.startswith(f"{section}.")}
    part = next((each for each in there.values() if each), "")
    if not section and name in ELSEWHERE and any(each.startswith("optimizer.") for each in keys):
        near = [ELSEWHERE[name]]
    elif part:
        near = [f"{section}.{each}" for each in get_close_matches(name, there, n=1, cutoff=0.7)]
    else:
        tails = {each.rpartition(".")[2]: each for each in keys}
        near = get_close_matches(key, [*(each.partition(".")[0] for each in keys), *keys], n=1, cutoff=0.7)
        near = near or [tails[each] for each in get_close_matches(name, tails, n=1, cutoff=0.7)]
    otherwise = f"{section} {part} takes {', '.join(there)}" if part else "`manyview show` lists all settings"
    return f"{key}: there is no such setting; " + (f"did you mean {near[0]!r}?" if near else otherwise)


def typed(keys: Mapping[str, Key], recipe: Flat, given: Flat) -> Flat:
    """The values, checked against their types; texts of flags are read as YAML reads them."""
    found = {}
    for key, each in keys.items():
        value = given.get(key, recipe.get(key, each.default))
        if value is True and key in given and bool not in (each.type, *typing.get_args(each.type)):
            raise UserError(None, f"{key}: expected {_said(each.type)}, got none; write --{spoken(key)} VALUE")
        text = isinstance(value, str) and key in given
        found[key] = value if value is REQUIRED else _one(key, value, each.type, text)
    return found


def _one(key: str, value: Any, hint: Any, text: bool) -> Any:
    """A value as its type has it."""
    parser = _parser(hint)
    try:
        given = parser.parse_args([f"--it={_listed(value, hint)}"]) if text else parser.parse_object({"it": value})
        if given.it is None and type(None) not in typing.get_args(hint):
            raise UserError(None, value)
    except (ArgumentError, TypeError, ValueError):
        raise UserError(None, f"{key}: expected {_said(hint)}, got {value!r}") from None
    return given.it


@cache
def _parser(hint: Any) -> ArgumentParser:
    """Of a single value: one of all settings would look at all of them for each."""
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--it", type=hint)
    return parser


def _listed(text: str, hint: Any) -> str:
    """`1,20,200` and a single 7 are lists where a list is wanted."""
    origins = {typing.get_origin(each) for each in (hint, *typing.get_args(hint))}
    many = origins & {tuple, list, Sequence}
    return text if not many or text.startswith(("[", "null")) else f"[{text}]"


def _said(hint: Any) -> str:
    """A type in words."""
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if hint in words:
        return words[hint]
    origin, within = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(str, within))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_said(each) for each in within if each is not int or float not in within)
    if origin in (tuple, list, Sequence):
        many = f" of {len(within)}" if origin is tuple and Ellipsis not in within else ""
        return f"a list{many}, each {_said(within[0])}"
    return "a table of settings"


def choices(hint: Any) -> list[str]:
    """All texts that a type allows, where they are few."""
    if hint in (bool, type(None)):
        return ["true", "false"] if hint is bool else ["null"]
    if typing.get_origin(hint) is Literal:
        return [str(each) for each in typing.get_args(hint)]
    parts = [choices(each) for each in typing.get_args(hint)]
    return [text for each in parts for text in each] if all(parts) else []


def yes(key: str, given: bool | str) -> bool:
    """A switch: the flag alone, or with what it says."""
    found = given if isinstance(given, bool) else SWITCH.get(given.lower())
    if found is None:
        raise UserError(None, f"{key}: expected true or false, got {given!r}; write --{spoken(key)}, or leave it out")
    return found


def spoken(key: str) -> str:
    """As a flag: a part's name goes by its section's."""
    return key.removesuffix(".name").replace("_", "-")


class Twice(UserError):
    """A key that a file has two values for."""


class _Strict(yaml.SafeLoader):
    """Of two values for a key YAML takes the last without a word; here that is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                raise Twice(None, f"{key} is there twice; leave one out")
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """What a YAML file holds, by its outermost keys."""
    try:
        found = yaml.load(Path(path).read_text(encoding="utf-8"), _Strict)
    except Twice as error:
        raise UserError(None, f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(None, f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise UserError(None, f"{path}: cannot be read: {error.strerror}") from None
    if not isinstance(found, dict):
        raise UserError(None, f"{path}: expected settings such as 'epochs: 100', got {type(found).__name__}")
    return found
