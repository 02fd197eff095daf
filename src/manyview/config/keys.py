"""Settings of any function: which there are, of which type and with which bounds, read off its signature."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from manyview.core.bounds import Bound
from manyview.core.errors import nearest

Flat = dict[str, Any]
"""Settings by their keys, such as `loss.temperature`."""

REQUIRED = inspect.Parameter.empty
PLAIN = (int, float, str, bool, type(None), Any, ...)  # types that a recipe can hold
ELSEWHERE = {"learning_rate": "optimizer.lr", "queue_size": "memory.size", "momentum": "optimizer.momentum, of sgd"}


class Key(NamedTuple):
    """One setting.

    part    whose argument it is
    bounds  of a number
    about   what it means, where the signature says so
    """

    type: Any
    default: Any
    part: str = ""
    bounds: tuple[Bound, ...] = ()
    about: str = ""


def keys_of(
    section: str,
    function: Callable[..., Any],
    *,
    hidden: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    part: str = "",
) -> dict[str, Key]:
    """What a function can be given by keyword and a recipe can hold; but not what is hidden, which the run gives."""
    hints = typing.get_type_hints(function, include_extras=True)
    keys: dict[str, Key] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        by_keyword = parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not REQUIRED
        if by_keyword and name not in hidden:
            key = key_of(hints[name], (defaults or {}).get(name, parameter.default), part)
            keys |= {} if key.type is None else {f"{section}.{name}": key}
    return keys


def key_of(hint: Any, default: Any = REQUIRED, part: str = "") -> Key:
    """A setting of a type, which may have bounds and a meaning: `Annotated[int, AtLeast(1), "images a step"]`."""
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    bounds = tuple(each for each in extras if isinstance(each, Bound))
    about = next((each for each in extras if isinstance(each, str)), "")
    return Key(_settable(typing.get_args(hint)[0] if extras else hint), default, part, bounds, about)


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
    """What to say of a key that there is not, with the nearest that there is."""
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
    """A key as one types it after `--`: a part goes by its section's name."""
    return key.removesuffix(".name").replace("_", "-")
