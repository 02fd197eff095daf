"""A run's settings: which parts it has and what each can be given; recipes and flags, both strict.

A setting has a key. Keys of a section, such as `loss.temperature`, belong to the part that the section names: its
function's signature says which there are, of which type, and with which defaults. Naming another part (`--loss.name
dcl`) brings that part's keys and refuses the replaced one's.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
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
    "checkpoint_minutes", "checkpoint_steps", "snapshots", "max_broken",
)  # fmt: skip
"""Settings that say where and how a run runs, not what it computes: a resumed run may change them."""


@dataclass(frozen=True)
class Config:
    """All settings of a run. The sections hold their part's name and its arguments.

    out                 the run's folder; None: runs/ and a name made of method, data and settings
    epochs, max_steps   how long; the schedule spans the epochs (2.5 is allowed), and max_steps only ends a run early
    batch_size          images a step, of all processes together
    micro_batch         images that a process embeds at a time; the gradient stays that of the whole batch
    precision           fp32; bf16 or fp16: mixed; fp64 for checks
    clip                gradients are scaled down to this length, if longer
    snapshots           epochs after which a checkpoint is kept for ever
    checkpoint_minutes  a checkpoint after so many minutes, besides one an epoch
    checkpoint_steps    and after so many steps
    health_every        steps between two looks at the run's health
    knn_every           epochs between two kNN scores, where labels exist; 0 for none
    knn_bank            at most so many training images are the neighbours,
    knn_queries         and so many images kept aside are scored
    max_broken          the share of unreadable images that is too much
    report              whether a page about the run is written at its end
    """

    data: dict[str, Any]
    views: dict[str, Any]
    encoder: dict[str, Any]
    method: dict[str, Any]
    loss: dict[str, Any]
    negatives: dict[str, Any]
    head: dict[str, Any]
    optimizer: dict[str, Any]
    schedule: dict[str, Any]
    out: str | None = None
    epochs: int | float = 100
    max_steps: int | None = None
    batch_size: int = 64
    micro_batch: int | None = None
    seed: int = 0
    precision: Precision = "fp32"
    clip: float | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: int | None = None
    max_broken: float = 0.05
    snapshots: tuple[int, ...] = ()
    checkpoint_minutes: float = 5.0
    checkpoint_steps: int | None = None
    health_every: int = 20
    knn_every: int = 1
    knn_bank: int = 5000
    knn_queries: int = 1000
    loggers: tuple[str, ...] = ("tensorboard",)
    report: bool = True
    quiet: bool = False


@dataclass(frozen=True)
class Section:
    """A table of parts, one of which a run has.

    chooser  the key that names it
    default  its name; None: the method's own choice
    hidden   arguments that are not settings, because the run gives them
    more     keys that every part of the section has
    refused  parts that are in the table and no run can have, and why
    """

    table: Mapping[str, Callable[..., Any]]
    default: str | None
    chooser: str = "name"
    hidden: tuple[str, ...] = ()
    more: dict[str, Key] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


PARTS = {  # of a method: its own parameters of these names have partials as defaults
    "loss": Section(
        LOSSES,
        None,
        hidden=("query", "positives", "negatives", "present", "reduction", "gather"),
        refused={
            "nce": "needs a memory bank, which no method has yet",
            "attraction": "alone pushes nothing apart: all images would end as one point; cacr has both halves",
            "repulsion": "alone pulls nothing together: looks at an image would mean nothing; cacr has both halves",
        },
    ),
    "negatives": Section(MEMORIES, None, hidden=("dim", "generator")),
    "head": Section(encoders.HEADS, None, hidden=("dim_in",)),
}
SECTIONS = {
    "method": Section(METHODS, "dcl"),
    **PARTS,
    "views": Section(
        AUGMENTATIONS,
        "auto",
        "stack",
        ("copies",),
        {"size": Key(int | None, None)},
        refused={"probe-test": "shows a picture as it is: all looks at it would be the same"},
    ),
    "optimizer": Section(optim.OPTIMIZERS, "adamw"),
    "schedule": Section(optim.SCHEDULES, "cosine", more={"per": Key(Literal["step", "epoch"], "step")}),
}
ENCODER = "patchnet"  # where nobody names one


def flat(settings: Mapping[str, Any]) -> Flat:
    """{"loss": {"name": "dcl"}} to {"loss.name": "dcl"}; a section given as a text is its part's name."""
    found: Flat = {}
    for key, value in settings.items():
        key = str(key).replace("-", "_")
        section = key.partition(".")[0]
        if isinstance(value, Mapping) and "." not in key and key in _sections():
            found |= {f"{key}.{str(name).replace('-', '_')}": each for name, each in value.items()}
        elif key in _sections():
            found[f"{key}.{_chooser(section)}"] = value
        else:
            found[key] = value
    return found


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
        new = flat({key: True if alone else text if equals else rest.pop(0)})
        for twice in new.keys() & found.keys():
            raise UserError(None, f"{spoken(twice)}: is given twice; leave one out")
        found |= new
    return found


def resolve(recipe: Flat, given: Flat) -> Config:
    """The whole configuration from a recipe and what a person gave on top of it (texts or values)."""
    given = {_full(key): value for key, value in given.items()}
    kept = {key: value for key, value in recipe.items() if not _replaced(key, recipe, given)}
    keys = schema({**kept, **given})
    kept, given = (_whole_keys(each, keys) for each in (kept, given))
    for key in (*kept, *given):
        if key not in keys:
            raise UserError(None, unknown(key, keys))
    values = typed(keys, kept, given)
    missing = [key for key, value in values.items() if value is REQUIRED]
    if missing:
        raise UserError(None, f"{missing[0]}: is needed; give --{spoken(missing[0])}")
    _check(values)
    config = Config(**_nested(values))
    _try_out(config)
    return config


def schema(chosen: Flat) -> dict[str, Key]:
    """All keys of a run with these parts."""
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
    method = METHODS[_choice("method", chosen)]
    for section in SECTIONS:
        own |= _section_keys(section, chosen, method)
    return {**data, **encoder, **own}


def to_yaml(config: Config) -> str:
    """All settings, so that the file alone runs the job again."""
    plain = {each.name: getattr(config, each.name) for each in fields(config)}
    return str(yaml.safe_dump(_plain(plain), sort_keys=False, allow_unicode=True))


def from_yaml(path: str | Path) -> Config:
    return resolve(flat(read_yaml(path)), {})


def differences(old: Config, new: Config) -> list[str]:
    """The settings that make two runs other runs, `key: old -> new`."""
    before, after = (flat(_plain(vars(config))) for config in (old, new))
    keys = [key for key in {**before, **after} if key not in MACHINE and before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys]


def part(config: Config, section: str) -> Callable[..., Any]:
    """The part that a section names, with its arguments."""
    about, options = SECTIONS[section], dict(getattr(config, section))
    name = options.pop(about.chooser)
    return partial(about.table[name], **{key: value for key, value in options.items() if key not in about.more})


def _sections() -> tuple[str, ...]:
    return ("data", "encoder", *SECTIONS)


def _chooser(section: str) -> str:
    return SECTIONS[section].chooser if section in SECTIONS else "name"


def _full(key: str) -> str:
    """`method` stands for `method.name`, and `stack`, which only views have, for `views.stack`."""
    if key in _sections():
        return f"{key}.{_chooser(key)}"
    unusual = [section for section in _sections() if _chooser(section) == key != "name"]
    return f"{unusual[0]}.{key}" if unusual else key


def _replaced(key: str, recipe: Flat, given: Flat) -> bool:
    """Whether a recipe's setting belongs to a part for which a person has chosen another."""
    section, _, name = key.partition(".")
    if section not in _sections() or (section in SECTIONS and name in SECTIONS[section].more):
        return False
    above = ("method", section) if section in PARTS else (section,)
    return any(_named(each, {**recipe, **_only(each, given)}) != _named(each, recipe) for each in above)


def _only(section: str, chosen: Flat) -> Flat:
    """What is chosen of a section: the name of its part, if that."""
    chooser = f"{section}.{_chooser(section)}"
    return {chooser: chosen[chooser]} if chooser in chosen else {}


def _named(section: str, chosen: Flat) -> Any:
    """The part that a section has by what is chosen, or else by default; None where there is no default."""
    found = _only(section, chosen)
    if found:
        return next(iter(found.values()))
    if section in PARTS:
        return _usual(section, METHODS[_choice("method", chosen)])
    return SECTIONS[section].default if section in SECTIONS else {"encoder": ENCODER}.get(section)


def _usual(section: str, method: Callable[..., Any]) -> str:
    """The name of the part that a method itself chooses."""
    own = inspect.signature(method).parameters[section].default
    return next(name for name, function in SECTIONS[section].table.items() if function is own.func)


def _choice(section: str, chosen: Flat) -> str:
    about = SECTIONS[section]
    name = chosen.get(f"{section}.{about.chooser}", about.default)
    if not isinstance(name, str):
        got = "none" if name is None or name is True else repr(name)
        raise UserError(None, f"{section}: expected the name of one, got {got}; `manyview show` lists all settings")
    if name in about.refused:
        raise UserError(None, f"{section}: {name} {about.refused[name]}; choose another")
    if name not in about.table:
        there = [each for each in about.table if each not in about.refused]
        near = get_close_matches(str(name), there, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(there)}"
        raise UserError(None, f"{section}: there is none named {name!r}; {hint}")
    return str(name)


def data_keys(name: str | None) -> dict[str, Key]:
    """Of `open_data`, those that mean something for this data; all while nobody has named any."""
    kinds = {"scenes": ("count", "size", "seed"), "named": ("root", "download"), "folder": ("labels",)}
    kind = "scenes" if name == SCENES else "named" if name in NAMED else "folder"
    hidden = [key for each, keys in kinds.items() if name is not None and each != kind for key in keys]
    found = keys_of("data", open_data, hidden=("data", *hidden), part="" if name is None else str(name))
    return {**found, "data.imbalance": Key(Rule | None, None)}


def _section_keys(section: str, chosen: Flat, method: Callable[..., Any]) -> dict[str, Key]:
    about, chooser = SECTIONS[section], f"{section}.{SECTIONS[section].chooser}"
    own = inspect.signature(method).parameters[section].default if section in PARTS else None
    if own is not None:  # the method's choice, with its numbers
        usual = _usual(section, method)
        name = _choice(section, {chooser: usual, **chosen})
        defaults = own.keywords if name == usual else {}
    elif about.default == "auto" and chosen.get(chooser, "auto") == "auto":
        return {chooser: Key(str, "auto"), **{f"{section}.{key}": each for key, each in about.more.items()}}
    else:
        name, defaults = _choice(section, chosen), {}
    parts = tuple(PARTS) if section == "method" else ()
    found = keys_of(section, about.table[name], hidden=about.hidden + parts, defaults=defaults, part=name)
    more = {f"{section}.{key}": each for key, each in about.more.items()}
    return {chooser: Key(str, name), **found, **more}


def _settings() -> list[tuple[Any, Any]]:
    hints = typing.get_type_hints(Config)
    return [(each, hints[each.name]) for each in fields(Config) if each.name not in _sections()]


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
    **dict.fromkeys(("knn_bank", "knn_queries", "views.size", "head.dim_out", "head.hidden", "method.splits"), 1),
    **dict.fromkeys(("knn_every", "workers", "checkpoint_minutes", "max_broken", "schedule.warmup"), 0),
    **dict.fromkeys(("optimizer.momentum", "optimizer.weight_decay", "optimizer.trust"), 0),
    "batch_size": 2,  # with one image there is nothing to contrast it with
}


MOST = (1 << 31) - 1  # of anything that numbers are counted by


def _check(values: Flat) -> None:
    """Numbers that no run could have."""
    for key, least in LEAST.items():
        if values.get(key) is not None and not values[key] >= least:
            raise UserError(None, f"{key}: expected at least {least}, got {values[key]}")
    for key in ("views.size", "head.dim_out", "head.hidden", "negatives.size"):
        if (values.get(key) or 0) > MOST:
            raise UserError(None, f"{key}: expected at most {MOST}, got {values[key]}")
    for key in ("optimizer.lr", "clip", "epochs"):
        if values[key] is not None and not 0 < values[key] < math.inf:
            raise UserError(None, f"{key}: expected a number above 0, got {values[key]}")
    if (values.get("optimizer.momentum") or 0) >= 1:
        raise UserError("optimizer.momentum", f"expected less than 1, got {values['optimizer.momentum']}")
    if values["max_broken"] > 1:
        raise UserError("max_broken", f"expected a share from 0 to 1, got {values['max_broken']}")
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
    _check_batch(values["batch_size"], values["micro_batch"], values.get("method.splits", 1))


def _check_batch(batch: int, micro: int | None, splits: int) -> None:
    if micro is not None and micro > batch:
        raise UserError("micro_batch", f"{micro} images at a time are more than the batch of {batch}; leave it out")
    for name, size in (("batch_size", batch), ("micro_batch", micro or batch)):
        if size % splits:
            raise UserError("method.splits", f"{name} {size} does not fall into {splits} equal groups; give a divisor")


def _try_out(config: Config) -> None:
    """Makes the method's parts once, as small as can be: what they refuse is refused before a run is begun."""
    with torch.random.fork_rng(devices=[]):
        encoder = encoders.create(ENCODER, size=8, widths=(4,), blocks=(1,))
        small: Flat = {"head": None, "negatives": MEMORIES["batch"]}
        two, ids = torch.eye(2), torch.arange(2)
        trials: dict[str, Callable[[Callable[..., Any]], Any]] = {
            "head": lambda head: _weightless(head, encoder.dim),
            "negatives": lambda negatives: _weightless(negatives, 1),
            "loss": lambda loss: loss(two, two[:, None], Negatives(two, ids, ids)),
            "method": lambda method: method(encoder, loss=part(config, "loss"), **small),
            "optimizer": lambda optimizer: optimizer(encoder),
        }
        if config.views["stack"] != "auto":
            trials["views"] = lambda views: views(config.views["size"] or 32, 2)
        for section, trial in trials.items():
            try:
                trial(part(config, section))
            except ValueError as error:  # ours begin with the name of the argument
                ours = re.match("[a-z][a-z_ ]*[:=]", str(error))
                raise UserError(None, f"{section}{'.' if ours else ': '}{error}") from None
            except RuntimeError as error:
                raise UserError(None, f"{section}: {str(error).splitlines()[0]}") from None


def _weightless(make: Callable[[int], Any], dim: int) -> Any:
    """Something that holds no numbers, however large it is."""
    with torch.device("meta"):
        return make(dim)


def _nested(values: Flat) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        section, dot, name = key.partition(".")
        if dot:
            found.setdefault(section, {})[name] = value
        else:
            found[key] = value
    return found


def _plain(value: Any) -> Any:
    """As YAML can write it."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
