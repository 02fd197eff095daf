"""Resolves the settings of a run from a recipe and flags, both strict. Nothing is built and nothing is run."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from manyview.config import sections
from manyview.config.config import Config
from manyview.config.keys import REQUIRED, Flat, Key, flag_name, key_of, typed
from manyview.config.sections import ALWAYS, PARTS, SECTIONS, chosen_method, flat, parts_of
from manyview.core.atomic import expanded
from manyview.core.errors import UserError
from manyview.training.run_log import logger

AUTO = (
    "encoder.name", "augmentation.size", "augmentation.small_scale", "method.copies", "method.small", "precision",
    "batch_size", "schedule.warmup",
)  # fmt: skip
"""Settings that follow from data, machine and time where nobody gives them; a recipe leaves none of them open."""
WITH_TIME = ("epochs", "evaluate_every", "schedule.warmup", "schedule.milestones")
"""Settings that follow from `minutes`, whatever a recipe says, where a person does not give them too."""
NOT_GIVEN = (None, "null")  # as values, and as texts of flags
PATHS = ("data.name", "data.root", "encoder.pretrained", "out")


def resolve(recipe: Flat, given: Flat) -> Config:
    """Resolves the settings of a run from a recipe and what the user gave on top of it (texts or values).

    Naming another part (`--loss dcl`) brings that part's keys and refuses the replaced one's.
    """
    recipe = _by_section(recipe, recipe)
    given = _by_section(given, {**recipe, **given})
    kept = {key: value for key, value in recipe.items() if not _replaced(key, recipe, given)}
    kept = _by_section(kept, {**kept, **given})
    keys = schema({**kept, **given})
    kept, given = (_whole_keys(each, keys) for each in (kept, given))
    kept, given, auto = _left_open(kept, given, keys)
    method = chosen_method({**kept, **given})
    parts = parts_of(method)
    for key in (*kept, *given):
        section = key.partition(".")[0]
        if section in PARTS and section not in parts:
            there = ", ".join(parts) or "none"
            raise UserError(key, f"the method {method.__name__} has no {section}; its parts are {there}")
    values = typed(keys, kept, given)
    for key in PATHS:
        if isinstance(path := values.get(key), str) and path.startswith("~"):
            values[key] = str(expanded(flag_name(key), path))
    _check(values)
    if values["augmentation.name"] == "auto":
        auto = (*auto, "augmentation.name")
    return replace(_config(values, method), auto=auto)


def _left_open(recipe: Flat, given: Flat, keys: Mapping[str, Key]) -> tuple[Flat, Flat, tuple[str, ...]]:
    """Removes what is `auto` or overridden from recipe and flags, and lists the keys that are left open."""
    auto = [key for key in AUTO if given.get(key, recipe.get(key)) == "auto" or not (recipe or key in given)]
    given = {key: value for key, value in given.items() if key not in auto}
    recipe = {key: value for key, value in recipe.items() if key not in auto}
    length = [key for key in ("epochs", "max_steps") if given.get(key) not in NOT_GIVEN]
    if given.get("minutes") not in NOT_GIVEN:
        for key in length:
            raise UserError("minutes", f"{given['minutes']} and {key} {given[key]} are both given; leave one out")
        recipe = {key: value for key, value in recipe.items() if key != "max_steps"}
        auto += [key for key in WITH_TIME if key not in given]
    elif length:
        recipe = {key: value for key, value in recipe.items() if key != "minutes"}
    elif recipe.get("minutes") is not None and "epochs" not in recipe:
        auto += [key for key in WITH_TIME if key not in recipe and key not in given]
    return recipe, given, tuple(key for key in dict.fromkeys(auto) if key in keys)


def schema(chosen: Flat) -> dict[str, Key]:
    """Lists all keys of a run with these parts."""
    chosen = _by_section(chosen, chosen)
    named = chosen.get("data.name")
    if not isinstance(named, str | bool | None):
        raise UserError("data", f"expected a folder or a name, got {named!r}")
    data = sections.data_keys(named if isinstance(named, str) else None)
    keys = {"data.name": Key(str, REQUIRED), **data, **sections.encoder_keys()}
    hints = typing.get_type_hints(Config, include_extras=True)
    own = [each for each in fields(Config) if each.name not in (*ALWAYS, "parts", "auto")]
    keys |= {each.name: key_of(hints[each.name], each.default) for each in own}
    method = chosen_method(chosen)
    for section in ("method", *parts_of(method), *SECTIONS):
        keys |= sections.section_keys(section, chosen, method)
    return keys


def _by_section(settings: Flat, chosen: Flat) -> Flat:
    """Writes `loss` as `loss.name`, for the parts that the chosen method has."""
    return flat(settings, parts_of(chosen_method(chosen)))


def _replaced(key: str, recipe: Flat, given: Flat) -> bool:
    """Tells whether a setting of the recipe belongs to a part that the user has replaced by another."""
    section, _, name = key.partition(".")
    method = chosen_method(recipe)
    parts = parts_of(method)
    if section in SECTIONS and name in SECTIONS[section].more:
        return name not in SECTIONS[section].more_for(chosen_method({**recipe, **given}))
    if section not in (*ALWAYS, *parts):
        return False
    above = ("method", section) if section in parts else (section,)
    choosers = {f"{each}.name": each for each in above}
    return any(
        given[name] != recipe.get(name, sections.usual_part(each, method))
        for name, each in choosers.items()
        if name in given
    )


def _whole_keys(settings: Flat, keys: Mapping[str, Key]) -> Flat:
    """Completes a key that only one section has and that was given without it: --lr for --optimizer.lr."""
    found: Flat = {}
    for key, value in settings.items():
        meant = [] if key in keys or "." in key else [each for each in keys if each.rpartition(".")[2] == key]
        if len(meant) > 1:
            raise UserError(f"--{key}", f"which of {', '.join('--' + each for each in meant)}?")
        whole = meant[0] if meant else key
        if whole in found:
            raise UserError(flag_name(whole), f"is given twice, also as {key}; leave one out")
        found[whole] = value
    return found


def _check(values: Flat) -> None:
    """Refuses combinations of values that contradict each other."""
    warmup, epochs = values["schedule.warmup"], values["epochs"]
    if 0 < warmup >= epochs:
        raise UserError("schedule.warmup", f"{warmup:g} epochs of a run of {epochs}; give less")
    if values["schedule.first_epoch"] and values["schedule.per"] == "step":
        raise UserError("schedule.first_epoch", "the rate changes with every step; give --schedule.per epoch too")
    views = values["views"] or ()
    if twice := [name for name in dict.fromkeys(views) if views.count(name) > 1]:
        raise UserError("views", f"{', '.join(twice)} {'is' if len(twice) == 1 else 'are'} named twice; name each once")
    for name in values["loggers"]:
        logger(name)
    for name in values["encoder.options"]:
        if not isinstance(name, str):
            raise UserError("encoder.options", f"expected names of arguments, got {name!r}")
        if name in ("channels", "size") or f"encoder.{name}" in values:
            known = {"size": "--augmentation.size", "channels": "the data"}.get(name, f"--encoder.{name}")
            raise UserError("encoder.options", f"{name} is given by {known}; leave it out")
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
