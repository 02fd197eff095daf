"""Sections of settings: each names a part of a run, and the part's signature declares its other settings.

The parts of a method are read off its signature: every parameter whose default is a `functools.partial` is one, and its
section has the parameter's name. A method without a memory has no setting `memory`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from manyview import encoders
from manyview.config.keys import Flat, Key, key_of, keys_of
from manyview.core.bounds import Above, AtMost, Between, Count
from manyview.core.errors import UserError, nearest
from manyview.data import NAMED, open_data
from manyview.data.factory import SCENES
from manyview.data.selection import Rule
from manyview.losses import DECORRELATIONS, LOSSES
from manyview.losses.prediction import DISTANCES
from manyview.memories import MEMORIES
from manyview.methods import METHODS
from manyview.training.optimizers import OPTIMIZERS, SCHEDULES
from manyview.views import AUGMENTATIONS
from manyview.views.augmentation_recipes import Chance
from manyview.views.multicrop import SMALL_SCALE

FIRST_EPOCH = Annotated[int, Between(0, 1, "the number of the first epoch")]
KEEP_PREDICTOR = Annotated[bool, "the predictor's learning rate stays what it is, as in SimSiam's code"]
LAYER_DECAY = Annotated[
    float | None, Above(0), AtMost(1), "the learning rate of an encoder's layer is so many times that of the next one"
]


@dataclass(frozen=True)
class Section:
    """A table of parts, of which a run chooses one."""

    table: Mapping[str, Callable[..., Any]]
    default: str | None = None  # its name; None: the method's own choice
    hidden: tuple[str, ...] = ()  # arguments that are not settings, because the run gives them
    more: dict[str, Key] = field(default_factory=dict)  # keys that every part of the section has
    needs: dict[str, str] = field(default_factory=dict)  # of these keys: the argument that a method must have for them
    refused: dict[str, str] = field(default_factory=dict)  # parts that are in the table and no run can have, and why

    def more_for(self, method: Callable[..., Any]) -> dict[str, Key]:
        """Returns the keys that every part of the section has in a run of this method."""
        takes = inspect.signature(method).parameters
        return {key: each for key, each in self.more.items() if key not in self.needs or self.needs[key] in takes}


SECTIONS = {  # that every run has, besides data and encoder
    "method": Section(METHODS, "dcl"),
    "augmentation": Section(
        AUGMENTATIONS,
        "auto",
        ("copies",),
        {
            "size": key_of(Count)._replace(type=int | None, default=None),
            "small_size": key_of(Count)._replace(type=int | None, default=None),
            "small_scale": Key(tuple[float, float], SMALL_SCALE),
            "small_blur": key_of(Chance)._replace(type=float | None, default=None),
        },
        needs=dict.fromkeys(("small_size", "small_scale", "small_blur"), "small"),
        refused={"probe-test": "shows a picture as it is: all augmented views of it would be the same"},
    ),
    "optimizer": Section(OPTIMIZERS, "adamw", more={"layer_decay": key_of(LAYER_DECAY, None)}),
    "schedule": Section(
        SCHEDULES,
        "cosine",
        more={
            "per": Key(Literal["step", "epoch"], "step"),
            "first_epoch": key_of(FIRST_EPOCH, 0),
            "keep_predictor": key_of(KEEP_PREDICTOR, False),
        },
        needs={"keep_predictor": "predictor"},
    ),
}
PARTS = {  # what a method's parameter of this name can be
    "loss": Section(
        LOSSES,
        hidden=("reduction", "population", "partition"),
        refused={
            "attraction": "alone pushes nothing apart: all images would end as one point; cacr has both halves",
            "repulsion": "alone pulls nothing together: views of an image would mean nothing; cacr has both halves",
        },
    ),
    "distance": Section(DISTANCES, hidden=("reduction",)),
    "head": Section(encoders.HEADS),
    "predictor": Section(encoders.HEADS),
    "memory": Section(MEMORIES),
    "decorrelation": Section(DECORRELATIONS),
    "prototypes": Section(encoders.PROTOTYPES),
    "momentum": Section(encoders.MOMENTUM),
}
ALWAYS = ("data", "encoder", *SECTIONS)
STATISTICS = Annotated[
    dict[str, Any], "mean and std that modalities other than pictures are normalised with; measured where not given"
]
ENCODER = "patchnet"  # where nobody names one


def usual_lr(optimizer: str) -> float:
    """Returns the default learning rate of an optimiser."""
    return float(inspect.signature(OPTIMIZERS[optimizer]).parameters["lr"].default)


def parts_of(method: Callable[..., Any]) -> dict[str, partial[Any]]:
    """Returns a method's parts with its own choice of each: the parameters whose default is a partial."""
    found = {name: each.default for name, each in inspect.signature(method).parameters.items()}
    return {name: default for name, default in found.items() if isinstance(default, partial)}


def section_of(name: str, method: Callable[..., Any]) -> Section:
    """Returns the section of a name; a part without a table has a section with the method's own choice alone."""
    if name in SECTIONS:
        return SECTIONS[name]
    own = parts_of(method)[name].func
    return PARTS.get(name) or Section({own.__name__: own})


def flat(settings: Mapping[str, Any], parts: Iterable[str] | None = None) -> Flat:
    """Flattens {"loss": {"name": "dcl"}} to {"loss.name": "dcl"}; a section given as a text is its part's name.

    parts: of the method; by default those of the method that the settings name.
    """
    found: Flat = {}
    for key, value in settings.items():
        key = str(key).replace("-", "_")
        if isinstance(value, Mapping) and "." not in key:
            found |= {f"{key}.{str(name).replace('-', '_')}": each for name, each in value.items()}
        else:
            found[f"{key}.name" if key in ALWAYS else key] = value
    if parts is None:
        method = METHODS.get(str(found.get("method.name", SECTIONS["method"].default)))
        parts = () if method is None else parts_of(method)
    return {f"{key}.name" if key in parts else key: value for key, value in found.items()}


def chosen_method(chosen: Flat) -> Callable[..., Any]:
    return METHODS[_checked_name("method", SECTIONS["method"], chosen.get("method.name", SECTIONS["method"].default))]


def usual_part(section: str, method: Callable[..., Any]) -> str | None:
    """Returns the name of the part that a section has by default."""
    own = parts_of(method).get(section)
    if own is None:
        return SECTIONS[section].default if section in SECTIONS else {"encoder": ENCODER}.get(section)
    return next(name for name, function in section_of(section, method).table.items() if function is own.func)


def section_keys(section: str, chosen: Flat, method: Callable[..., Any]) -> dict[str, Key]:
    """Lists all keys of a section with the chosen part; if the part is left out, only the name."""
    about, parts, usual = section_of(section, method), parts_of(method), usual_part(section, method)
    named = chosen.get(f"{section}.name", usual)
    more = {f"{section}.{key}": each for key, each in about.more_for(method).items()}
    may_be_none = section in parts and type(None) in typing.get_args(typing.get_type_hints(method)[section])
    kind = str | None if may_be_none else str
    if named == usual == "auto" or (may_be_none and named in (None, "null")):
        return {f"{section}.name": Key(kind, usual), **more}
    name = _checked_name(section, about, named)
    hidden = (*about.hidden, *(parts if section == "method" else ()))
    numbers = parts[section].keywords if section in parts and name == usual else {}  # the method's, of its own choice
    keys = keys_of(section, about.table[name], hidden=hidden, defaults=numbers, part=name)
    return {f"{section}.name": Key(kind, name), **keys, **more}


def _checked_name(section: str, about: Section, name: Any) -> str:
    if not isinstance(name, str):
        got = "none" if name is None or name is True else repr(name)
        raise UserError(section, f"expected the name of one, got {got}; `manyview show` lists all settings")
    if name in about.refused:
        raise UserError(section, f"{name} {about.refused[name]}; choose another")
    if name not in about.table:
        there = [each for each in about.table if each not in about.refused]
        near = nearest(name, there)
        meant = "" if near is None else f"did you mean {near!r}? "
        raise UserError(section, f"there is none named {name!r}; {meant}there are {', '.join(there)}")
    return name


def data_keys(name: str | None) -> dict[str, Key]:
    """Lists the arguments of `open_data` that apply to this data; all of them while no data is named."""
    kinds = {
        "scenes": ("count", "size", "seed"),
        "named": ("root", "download"),
        "folder": ("labels", "camera", "max_pixels"),
    }
    kind = "scenes" if name == SCENES else "named" if name in NAMED else "folder"
    hidden = [key for each, keys in kinds.items() if name is not None and each != kind for key in keys]
    found = keys_of("data", open_data, hidden=("data", *hidden), part="" if name is None else str(name))
    return {**found, "data.imbalance": Key(Rule | None, None), "data.statistics": key_of(STATISTICS, {})}


def encoder_keys() -> dict[str, Key]:
    """Lists the settings of an encoder: how it is made, and which part of it is trained."""
    found = keys_of("encoder", encoders.create, hidden=("name", "channels", "size"))
    found |= keys_of("encoder", encoders.choose_trained_part, hidden=("encoder",))
    return {"encoder.name": Key(str, ENCODER), **found, "encoder.options": Key(dict[str, Any], {})}
