"""A run's settings: which parts it has and what each can be given; recipes and flags, both strict.

A setting has a key. Keys of a section, such as `loss.temperature`, belong to the part that the section names: its
function's signature says which there are, of which type, and with which defaults. Naming another part (`--loss dcl`)
brings that part's keys and refuses the replaced one's.

The parts of a method are read off its signature: every parameter whose default is a `functools.partial` is one, and its
section has the parameter's name. A method without a memory has no setting `memory`.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from manyview import encoders
from manyview.config.settings import REQUIRED, Flat, Key, keys_of, read_yaml, spoken, typed, unknown
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.data import NAMED, open_data
from manyview.data.factory import SCENES
from manyview.data.imbalance import Rule
from manyview.losses import LOSSES
from manyview.memories import MEMORIES
from manyview.methods import METHODS
from manyview.training import optimizers as optim
from manyview.training.run_log import logger
from manyview.views import AUGMENTATIONS

Precision = Literal["fp32", "bf16", "fp16", "fp64"]
MACHINE = (
    "out", "device", "workers", "loggers", "quiet", "report", "data.name", "data.root", "data.download",
    "checkpoint_minutes", "checkpoint_steps", "snapshots", "max_unreadable",
)  # fmt: skip
"""Settings that say where and how a run runs, not what it computes: a resumed run may change them."""


@dataclass(frozen=True)
class Config:
    """All settings of a run. The sections hold their part's name and its arguments.

    views               the views that the method sees, by name; by default what the method takes
    out                 the run's folder; None: runs/ and a name made of method, data and settings
    epochs, max_steps   how long; the schedule spans the epochs (2.5 is allowed), and max_steps only ends a run early
    batch_size          images a step, of all processes together
    micro_batch         images that a process embeds at a time; the gradient stays that of the whole batch
    precision           fp32; bf16 or fp16: mixed; fp64 for checks
    grad_clip           gradients are scaled down to this length, if longer
    snapshots           epochs after which a checkpoint is kept for ever
    checkpoint_minutes  a checkpoint after so many minutes, besides one an epoch
    checkpoint_steps    and after so many steps
    health_every        steps between two looks at the run's health
    evaluators          what scores the encoder during training, where labels exist: knn, or [] for nothing
    evaluate_every      epochs between two scores; 0 for none
    knn_bank            at most so many training images are the neighbours of kNN,
    knn_queries         and so many held-out images are scored
    max_unreadable      the share of unreadable images that is too much
    report              whether a page about the run is written at its end
    """

    data: dict[str, Any]
    augmentation: dict[str, Any]
    encoder: dict[str, Any]
    method: dict[str, Any]
    parts: dict[str, dict[str, Any] | None]
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    views: tuple[str, ...] | None = None
    out: str | None = None
    epochs: int | float = 100
    max_steps: int | None = None
    batch_size: int = 64
    micro_batch: int | None = None
    seed: int = 0
    precision: Precision = "fp32"
    grad_clip: float | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: int | None = None
    max_unreadable: float = 0.05
    snapshots: tuple[int, ...] = ()
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None
    health_every: int = 20
    evaluators: tuple[str, ...] = ("knn",)
    evaluate_every: int = 1
    knn_bank: int = 5000
    knn_queries: int = 1000
    loggers: tuple[str, ...] = ("tensorboard",)
    report: bool = True
    quiet: bool = False

    def part(self, name: str) -> dict[str, Any] | None:
        """The name and arguments of a part of the method; None where the method has none, or was told to have none."""
        return self.parts.get(name)

    def nested(self) -> dict[str, Any]:
        """The settings as a recipe has them: the method's parts beside the other sections."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        before = list(found).index("parts")
        rows = list(found.items())
        return dict([*rows[:before], *self.parts.items(), *rows[before + 1 :]])

    def flat(self) -> Flat:
        """The settings by their keys, such as `loss.temperature`."""
        return flat(self.nested(), self.parts)


@dataclass(frozen=True)
class Section:
    """A table of parts, one of which a run has.

    default  its name; None: the method's own choice
    hidden   arguments that are not settings, because the run gives them
    more     keys that every part of the section has
    refused  parts that are in the table and no run can have, and why
    """

    table: Mapping[str, Callable[..., Any]]
    default: str | None = None
    hidden: tuple[str, ...] = ()
    more: dict[str, Key] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


SECTIONS = {  # that every run has, besides data and encoder
    "method": Section(METHODS, "dcl"),
    "augmentation": Section(
        AUGMENTATIONS,
        "auto",
        ("copies",),
        {"size": Key(int | None, None)},
        refused={"probe-test": "shows a picture as it is: all augmented views of it would be the same"},
    ),
    "optimizer": Section(optim.OPTIMIZERS, "adamw"),
    "schedule": Section(optim.SCHEDULES, "cosine", more={"per": Key(Literal["step", "epoch"], "step")}),
}
PARTS = {  # what a method's parameter of this name can be
    "loss": Section(
        LOSSES,
        hidden=("reduction",),
        refused={
            "nce": "needs a memory bank, which no method has yet",
            "attraction": "alone pushes nothing apart: all images would end as one point; cacr has both halves",
            "repulsion": "alone pulls nothing together: views of an image would mean nothing; cacr has both halves",
        },
    ),
    "head": Section(encoders.HEADS),
    "predictor": Section(encoders.HEADS),
    "memory": Section(MEMORIES),
    "momentum": Section(encoders.MOMENTUM),
}
ALWAYS = ("data", "encoder", *SECTIONS)
ENCODER = "patchnet"  # where nobody names one


def parts_of(method: Callable[..., Any]) -> dict[str, partial[Any]]:
    """The parts of a method with its own choice of each: parameters whose default is a partial of a function."""
    found = {name: each.default for name, each in inspect.signature(method).parameters.items()}
    return {name: default for name, default in found.items() if isinstance(default, partial)}


def section_of(name: str, method: Callable[..., Any]) -> Section:
    """The section of a name; for a part that no table knows, its table holds the method's own choice alone."""
    if name in SECTIONS:
        return SECTIONS[name]
    own = parts_of(method)[name].func
    return PARTS.get(name) or Section({own.__name__: own})


def flat(settings: Mapping[str, Any], parts: Iterable[str] | None = None) -> Flat:
    """{"loss": {"name": "dcl"}} to {"loss.name": "dcl"}; a section given as a text is its part's name.

    parts: of the method; by default those of the one that the settings name.
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


def read_flags(arguments: Sequence[str]) -> Flat:
    """`--key value`, `--key=value`, and `--key` alone for yes; the values still as texts."""
    found: Flat = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--") or len(word) == 2:
            hint = f"; for data write --data {word}" if not found else ""
            raise UserError(None, f"expected --key value, got {word!r}{hint}")
        key, equals, text = word[2:].partition("=")
        alone = not equals and (not rest or rest[0].startswith("--"))
        value = True if alone else text if equals else rest.pop(0)
        ((name, value),) = flat({key: value}).items()
        if name in found:
            raise UserError(spoken(name), "is given twice; leave one out")
        found[name] = value
    return found


def resolve(recipe: Flat, given: Flat) -> Config:
    """The whole configuration from a recipe and what a person gave on top of it (texts or values)."""
    recipe = _by_section(recipe, recipe)
    given = _by_section(given, {**recipe, **given})
    kept = {key: value for key, value in recipe.items() if not _replaced(key, recipe, given)}
    kept = _by_section(kept, {**kept, **given})
    keys = schema({**kept, **given})
    kept, given = (_whole_keys(each, keys) for each in (kept, given))
    for key in (*kept, *given):
        if key not in keys:
            raise UserError(None, unknown(key, keys) if _known(key, keys) else _without(key, {**kept, **given}))
    values = typed(keys, kept, given)
    missing = [key for key, value in values.items() if value is REQUIRED]
    if missing:
        raise UserError(None, f"{missing[0]}: is needed; give --{spoken(missing[0])}")
    _check(values)
    config = _nested(values, _method(kept | given))
    _try_out(config)
    return config


def schema(chosen: Flat) -> dict[str, Key]:
    """All keys of a run with these parts."""
    chosen = _by_section(chosen, chosen)
    own = {each.name: Key(hint, each.default) for each, hint in _settings()}
    named = chosen.get("data.name")
    if not isinstance(named, str | bool | None):
        raise UserError("data", f"expected a folder or a name, got {named!r}")
    data = {"data.name": Key(str, REQUIRED), **data_keys(named if isinstance(named, str) else None)}
    encoder = {
        "encoder.name": Key(str, ENCODER),
        **keys_of("encoder", encoders.create, hidden=("name", "channels", "size")),
    }
    encoder["encoder.options"] = Key(dict[str, Any], {})
    method = _method(chosen)
    for section in ("method", *parts_of(method), "augmentation", "optimizer", "schedule"):
        own |= _section_keys(section, chosen, method)
    return {**data, **encoder, **own}


def to_yaml(config: Config) -> str:
    """All settings, so that the file alone runs the job again."""
    return str(yaml.safe_dump(_plain(config.nested()), sort_keys=False, allow_unicode=True))


def from_yaml(path: str | Path) -> Config:
    return resolve(flat(read_yaml(path)), {})


def differences(old: Config, new: Config) -> list[str]:
    """The settings that make two runs other runs, `key: old -> new`."""
    before, after = ({key: _plain(value) for key, value in config.flat().items()} for config in (old, new))
    keys = [key for key in {**before, **after} if key not in MACHINE and before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys]


def component(config: Config, section: str) -> Callable[..., Any]:
    """What a section names, with its arguments."""
    given = config.parts.get(section) or getattr(config, section)
    about = section_of(section, METHODS[config.method["name"]])
    arguments = {key: value for key, value in given.items() if key != "name" and key not in about.more}
    return partial(about.table[given["name"]], **arguments)


def components(config: Config) -> dict[str, Callable[..., Any] | None]:
    """The parts of the method; None for one that the run is to do without."""
    return {name: None if part is None else component(config, name) for name, part in config.parts.items()}


def _method(chosen: Flat) -> Callable[..., Any]:
    return METHODS[_choice("method", SECTIONS["method"], chosen)]


def _by_section(settings: Flat, chosen: Flat) -> Flat:
    """The same with `loss` as `loss.name`, of the parts that the chosen method has."""
    return flat(settings, parts_of(_method(chosen)))


def _replaced(key: str, recipe: Flat, given: Flat) -> bool:
    """Whether a recipe's setting belongs to a part for which a person has chosen another."""
    section, _, name = key.partition(".")
    parts = parts_of(_method(recipe))
    if section not in (*ALWAYS, *parts) or (section in SECTIONS and name in SECTIONS[section].more):
        return False
    above = ("method", section) if section in parts else (section,)
    return any(_named(each, {**recipe, **_only(each, given)}) != _named(each, recipe) for each in above)


def _only(section: str, chosen: Flat) -> Flat:
    """What is chosen of a section: the name of its part, if that."""
    name = f"{section}.name"
    return {name: chosen[name]} if name in chosen else {}


def _named(section: str, chosen: Flat) -> Any:
    """The part that a section has by what is chosen, or else by default; None where there is no default."""
    found = _only(section, chosen)
    if found:
        return next(iter(found.values()))
    if section in SECTIONS:
        return SECTIONS[section].default
    method = _method(chosen)
    return _usual(section, method) if section in parts_of(method) else {"encoder": ENCODER}.get(section)


def _usual(section: str, method: Callable[..., Any]) -> str:
    """The name of the part that a method itself chooses."""
    own = parts_of(method)[section].func
    return next(name for name, function in section_of(section, method).table.items() if function is own)


def _choice(section: str, about: Section, chosen: Flat) -> str:
    name = chosen.get(f"{section}.name", about.default)
    if not isinstance(name, str):
        got = "none" if name is None or name is True else repr(name)
        raise UserError(section, f"expected the name of one, got {got}; `manyview show` lists all settings")
    if name in about.refused:
        raise UserError(section, f"{name} {about.refused[name]}; choose another")
    if name not in about.table:
        there = [each for each in about.table if each not in about.refused]
        near = get_close_matches(str(name), there, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(there)}"
        raise UserError(section, f"there is none named {name!r}; {hint}")
    return str(name)


def _known(key: str, keys: Mapping[str, Key]) -> bool:
    """Whether a key is not of a part that the method could have and has not."""
    section = key.partition(".")[0]
    return section not in PARTS or f"{section}.name" in keys


def _without(key: str, chosen: Flat) -> str:
    method = _choice("method", SECTIONS["method"], chosen)
    parts = ", ".join(parts_of(METHODS[method])) or "none"
    return f"{key}: the method {method} has no {key.partition('.')[0]}; its parts are {parts}"


def data_keys(name: str | None) -> dict[str, Key]:
    """Of `open_data`, those that mean something for this data; all while nobody has named any."""
    kinds = {"scenes": ("count", "size", "seed"), "named": ("root", "download"), "folder": ("labels",)}
    kind = "scenes" if name == SCENES else "named" if name in NAMED else "folder"
    hidden = [key for each, keys in kinds.items() if name is not None and each != kind for key in keys]
    found = keys_of("data", open_data, hidden=("data", *hidden), part="" if name is None else str(name))
    return {**found, "data.imbalance": Key(Rule | None, None)}


def _section_keys(section: str, chosen: Flat, method: Callable[..., Any]) -> dict[str, Key]:
    about, chooser, defaults = section_of(section, method), f"{section}.name", {}
    more = {f"{section}.{key}": each for key, each in about.more.items()}
    kind: Any = str
    if section in SECTIONS:
        if about.default == "auto" and chosen.get(chooser, "auto") == "auto":
            return {chooser: Key(str, "auto"), **more}
        name = _choice(section, about, chosen)
    else:  # the method's choice, with its numbers
        usual = _usual(section, method)
        kind = str | None if _may_be_none(section, method) else str
        if kind is not str and chosen.get(chooser, usual) in (None, "null"):
            return {chooser: Key(kind, usual)}
        name = _choice(section, about, {chooser: usual, **chosen})
        defaults = parts_of(method)[section].keywords if name == usual else {}
    hidden = about.hidden + (tuple(parts_of(method)) if section == "method" else ())
    found = keys_of(section, about.table[name], hidden=hidden, defaults=defaults, part=name)
    return {chooser: Key(kind, name), **found, **more}


def _may_be_none(part: str, method: Callable[..., Any]) -> bool:
    return type(None) in typing.get_args(typing.get_type_hints(method)[part])


def _settings() -> list[tuple[Any, Any]]:
    hints = typing.get_type_hints(Config)
    return [(each, hints[each.name]) for each in fields(Config) if each.name not in (*ALWAYS, "parts")]


def _whole_keys(settings: Flat, keys: Mapping[str, Key]) -> Flat:
    found: Flat = {}
    for key, value in settings.items():
        whole = _unique(key, keys)
        if whole in found:
            raise UserError(None, f"{spoken(whole)}: is given twice, also as {key}; leave one out")
        found[whole] = value
    return found


def _unique(key: str, keys: Mapping[str, Key]) -> str:
    """A key that only one section has may be given without it: --lr for --optimizer.lr."""
    if key in keys or "." in key:
        return key
    found = [each for each in keys if each.rpartition(".")[2] == key]
    if len(found) > 1:
        raise UserError(None, f"--{key}: which of {', '.join('--' + each for each in found)}?")
    return found[0] if found else key


LEAST = {
    **dict.fromkeys(("micro_batch", "max_steps", "checkpoint_steps", "health_every"), 1),
    **dict.fromkeys(
        ("knn_bank", "knn_queries", "augmentation.size", "head.dim_out", "head.hidden", "method.bn_splits"), 1
    ),
    **dict.fromkeys(("evaluate_every", "workers", "checkpoint_minutes", "max_unreadable", "schedule.warmup"), 0),
    **dict.fromkeys(("optimizer.momentum", "optimizer.weight_decay", "optimizer.trust"), 0),
    "batch_size": 2,  # with one image there is nothing to contrast it with
}


MOST = (1 << 31) - 1  # of anything that numbers are counted by


def _check(values: Flat) -> None:
    """Numbers that no run could have."""
    for key, least in LEAST.items():
        if values.get(key) is not None and not values[key] >= least:
            raise UserError(None, f"{key}: expected at least {least}, got {values[key]}")
    for key in ("augmentation.size", "head.dim_out", "head.hidden", "memory.size"):
        if (values.get(key) or 0) > MOST:
            raise UserError(None, f"{key}: expected at most {MOST}, got {values[key]}")
    for key in ("optimizer.lr", "grad_clip", "epochs"):
        if values[key] is not None and not 0 < values[key] < math.inf:
            raise UserError(None, f"{key}: expected a number above 0, got {values[key]}")
    if (values.get("optimizer.momentum") or 0) >= 1:
        raise UserError("optimizer.momentum", f"expected less than 1, got {values['optimizer.momentum']}")
    if values["max_unreadable"] > 1:
        raise UserError("max_unreadable", f"expected a share from 0 to 1, got {values['max_unreadable']}")
    if min(values["snapshots"], default=1) < 1:
        raise UserError("snapshots", f"expected epochs, counted from 1, got {min(values['snapshots'])}")
    if values["schedule.warmup"] >= values["epochs"] and values["schedule.warmup"] > 0:
        raise UserError(
            "schedule.warmup", f"{values['schedule.warmup']:g} epochs of a run of {values['epochs']}; give less"
        )
    if not 0 <= values["seed"] < 1 << 63:
        raise UserError("seed", f"expected a number from 0 to 2^63 - 1, got {values['seed']}")
    for name in values["loggers"]:
        logger(name)
    _check_batch(values["batch_size"], values["micro_batch"], values.get("method.bn_splits", 1))


def _check_batch(batch: int, micro: int | None, splits: int) -> None:
    if micro is not None and micro > batch:
        raise UserError("micro_batch", f"{micro} images at a time are more than the batch of {batch}; leave it out")
    for name, size in (("batch_size", batch), ("micro_batch", micro or batch)):
        if size % splits:
            raise UserError(
                "method.bn_splits", f"{name} {size} does not fall into {splits} equal groups; give a divisor"
            )


def _try_out(config: Config) -> None:
    """Makes the method's parts once, as small as can be: what they refuse is refused before a run is begun."""
    with torch.random.fork_rng(devices=[]):
        encoder = encoders.create(ENCODER, size=8, widths=(4,), blocks=(1,))
        two, ids = torch.eye(2), torch.arange(2)
        small: Flat = {"head": None, "memory": MEMORIES["batch"]}
        given = {name: small.get(name, part) for name, part in components(config).items()}
        trials: dict[str, Callable[[Callable[..., Any]], Any]] = {
            "head": lambda head: _weightless(head, encoder.dim),
            "memory": lambda memory: _weightless(memory, 1),
            "momentum": lambda momentum: momentum(0, 1),
            "loss": lambda loss: loss(two, two[:, None], Negatives(two, ids, ids)),
            "method": lambda method: method(encoder, **given),
            "optimizer": lambda optimizer: optimizer(encoder),
            "augmentation": lambda augmentation: augmentation(config.augmentation["size"] or 32, 2),
        }
        for section, trial in trials.items():
            if section in PARTS and config.part(section) is None:
                continue
            if section == "augmentation" and config.augmentation["name"] == "auto":
                continue
            try:
                trial(component(config, section))
            except ValueError as error:  # ours begin with the name of the argument
                ours = re.match("[a-z][a-z_ ]*[:=]", str(error))
                raise UserError(None, f"{section}{'.' if ours else ': '}{error}") from None
            except RuntimeError as error:
                raise UserError(None, f"{section}: {str(error).splitlines()[0]}") from None


def _weightless(make: Callable[[int], Any], dim: int) -> Any:
    """Something that holds no numbers, however large it is."""
    with torch.device("meta"):
        return make(dim)


def _nested(values: Flat, method: Callable[..., Any]) -> Config:
    found: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            found.setdefault(section, {})[name] = value
        else:
            found[key] = value
    parts = {name: found.pop(name) for name in parts_of(method)}
    parts = {name: None if part["name"] is None else part for name, part in parts.items()}
    return Config(parts=parts, **found)


def _plain(value: Any) -> Any:
    """As YAML can write it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
