"""Resolves a recipe and flags, both strict, to the settings of a run. Nothing is built and nothing runs here."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from manyview.config.config import Config
from manyview.config.keys import REQUIRED, Flat, Key, flag_name, key_of, typed
from manyview.config.sections import (
    ALWAYS,
    ENCODER,
    PARTS,
    SECTIONS,
    chosen_method,
    data_keys,
    encoder_keys,
    flat,
    own_choice,
    part_keys,
    parts_of,
    section_keys,
)
from manyview.core.errors import UserError
from manyview.training.run_log import logger


def resolve(recipe: Flat, given: Flat) -> Config:
    """The settings of a run from a recipe and what a person gave on top of it (texts or values).

    Naming another part (`--loss dcl`) brings that part's keys and refuses the replaced one's.
    """
    recipe = _by_section(recipe, recipe)
    given = _by_section(given, {**recipe, **given})
    kept = {key: value for key, value in recipe.items() if not _replaced(key, recipe, given)}
    kept = _by_section(kept, {**kept, **given})
    keys = schema({**kept, **given})
    kept, given = (_whole_keys(each, keys) for each in (kept, given))
    method = chosen_method({**kept, **given})
    for key in (*kept, *given):
        _check_part(key, method)
    values = typed(keys, kept, given)
    _check(values)
    return _config(values, method)


def schema(chosen: Flat) -> dict[str, Key]:
    """All keys of a run with these parts."""
    chosen = _by_section(chosen, chosen)
    named = chosen.get("data.name")
    if not isinstance(named, str | bool | None):
        raise UserError("data", f"expected a folder or a name, got {named!r}")
    keys = {"data.name": Key(str, REQUIRED), **data_keys(named if isinstance(named, str) else None), **encoder_keys()}
    hints = typing.get_type_hints(Config, include_extras=True)
    own = [each for each in fields(Config) if each.name not in (*ALWAYS, "parts")]
    keys |= {each.name: key_of(hints[each.name], each.default) for each in own}
    method = chosen_method(chosen)
    keys |= section_keys("method", chosen)
    for part in parts_of(method):
        keys |= part_keys(part, chosen, method)
    for section in SECTIONS:
        keys |= section_keys(section, chosen)
    return keys


def _by_section(settings: Flat, chosen: Flat) -> Flat:
    """The same with `loss` as `loss.name`, of the parts that the chosen method has."""
    return flat(settings, parts_of(chosen_method(chosen)))


def _replaced(key: str, recipe: Flat, given: Flat) -> bool:
    """Whether a recipe's setting belongs to a part for which a person has chosen another."""
    section, _, name = key.partition(".")
    parts = parts_of(chosen_method(recipe))
    if section not in (*ALWAYS, *parts) or (section in SECTIONS and name in SECTIONS[section].more):
        return False
    above = ("method", section) if section in parts else (section,)
    before = {each: _named(each, recipe) for each in above}
    return any(given.get(f"{each}.name", name) != name for each, name in before.items())


def _named(section: str, chosen: Flat) -> Any:
    """The part that a section has by what is chosen, or else by default; None where there is no default."""
    if f"{section}.name" in chosen:
        return chosen[f"{section}.name"]
    if section in SECTIONS:
        return SECTIONS[section].default
    method = chosen_method(chosen)
    return own_choice(section, method) if section in parts_of(method) else {"encoder": ENCODER}.get(section)


def _check_part(key: str, method: Callable[..., Any]) -> None:
    """Refuses a setting of a part that methods can have and this one has not."""
    section, parts = key.partition(".")[0], parts_of(method)
    if section in PARTS and section not in parts:
        there = ", ".join(parts) or "none"
        raise UserError(key, f"the method {method.__name__} has no {section}; its parts are {there}")


def _whole_keys(settings: Flat, keys: Mapping[str, Key]) -> Flat:
    found: Flat = {}
    for key, value in settings.items():
        whole = _unique(key, keys)
        if whole in found:
            raise UserError(flag_name(whole), f"is given twice, also as {key}; leave one out")
        found[whole] = value
    return found


def _unique(key: str, keys: Mapping[str, Key]) -> str:
    """A key that only one section has may be given without it: --lr for --optimizer.lr."""
    if key in keys or "." in key:
        return key
    found = [each for each in keys if each.rpartition(".")[2] == key]
    if len(found) > 1:
        raise UserError(f"--{key}", f"which of {', '.join('--' + each for each in found)}?")
    return found[0] if found else key


def _check(values: Flat) -> None:
    """Refuses numbers that do not go together."""
    warmup, epochs = values["schedule.warmup"], values["epochs"]
    if 0 < warmup >= epochs:
        raise UserError("schedule.warmup", f"{warmup:g} epochs of a run of {epochs}; give less")
    for name in values["loggers"]:
        logger(name)
    batch, micro = values["batch_size"], values["micro_batch"]
    if micro is not None and micro > batch:
        raise UserError("micro_batch", f"{micro} images at a time are more than the batch of {batch}; leave it out")


def _config(values: Flat, method: Callable[..., Any]) -> Config:
    found: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            found.setdefault(section, {})[name] = value
        else:
            found[key] = value
    parts = {name: found.pop(name) for name in parts_of(method)}
    return Config(parts={name: part if part["name"] else None for name, part in parts.items()}, **found)
