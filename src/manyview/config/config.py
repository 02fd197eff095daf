"""The settings of a run: resolved from a recipe and flags, both strict, and the parts that they name.

Resolving builds nothing and runs nothing.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

from manyview.config import sections
from manyview.config.keys import REQUIRED, Flat, Key, flag_name, key_of, typed
from manyview.config.sections import ALWAYS, PARTS, SECTIONS, chosen_method, flat, parts_of
from manyview.core.atomic import expanded
from manyview.core.bounds import MOST, MOST_WORKERS, Above, AtLeast, AtMost, Between, Count, NotNegative
from manyview.core.errors import UserError
from manyview.methods import METHODS
from manyview.training.run_log import logger

RUNTIME_KEYS = (
    "out", "device", "workers", "loggers", "quiet", "report", "data.name", "data.root", "data.download",
    "checkpoint_minutes", "checkpoint_steps", "snapshots", "max_unreadable", "grad_checkpoint",
    "wait_minutes",
)  # fmt: skip
"""Settings that say where and how a run runs, not what it computes: a resumed run may change them."""
MOST_MINUTES = 60 * 24 * 365
AUTO = (
    "encoder.name", "augmentation.size", "augmentation.small_scale", "method.copies", "method.small", "precision",
    "batch_size", "schedule.warmup",
)  # fmt: skip
"""Settings that follow from data, machine and time where nobody gives them; a recipe leaves none of them open."""
WITH_TIME = ("epochs", "evaluate_every", "schedule.warmup", "schedule.milestones")
"""Settings that follow from `minutes`, whatever a recipe says, where a person does not give them too."""
NOT_GIVEN = (None, "null")  # as values, and as texts of flags
OWN = "(own)"  # the name of a data set that a person made themselves
PATHS = ("data.name", "data.root", "encoder.pretrained", "out")
MAY_CHANGE = ", ".join(f"--{flag_name(key)}" for key in RUNTIME_KEYS if key != "out")


@dataclass(frozen=True)
class Config:
    """All settings of a run. The sections hold their part's name and its arguments.

    views               the views that the method sees: modalities, or names of `manyview list views`; by default what
                        the method takes
    out                 the run's folder; None: runs/ and a name made of method, data and settings
    schedule            per: epoch holds the rate for an epoch; epochs count from first_epoch, 1 in MoCo's CIFAR-10
                        notebook, where the last one has the rate 0; keep_predictor holds the predictor's rate for ever
    minutes             how long, from the command to the report, instead of epochs; what is chosen for it, from a few
                        timed steps, is written into the run's settings
    epochs, max_steps   how long; the schedule spans the epochs (2.5 is allowed), and max_steps only ends a run early
    batch_size          images a step, of all processes together
    drop_last           an epoch leaves out a last batch that is not full; false: that is trained on too, unless it is a
                        single image, which has nothing to be contrasted with
    micro_batch         images that a process embeds at a time; the gradient stays that of the whole batch
    grad_checkpoint     blocks of the encoders compute their activations again for the gradient instead of keeping them:
                        less memory, more time, the same gradient
    precision           fp32; bf16 or fp16: mixed; fp64 for checks
    grad_clip           gradients are scaled down to this length, if longer
    snapshots           epochs after which a checkpoint is kept for ever
    checkpoint_minutes  a checkpoint after so many minutes, besides one an epoch
    checkpoint_steps    and after so many steps
    health_every        steps between two reports on the run's health
    evaluators          what scores during training: knn where labels exist, retrieval where a method contrasts several
                        views, else instance, which needs no labels; [] for nothing
    evaluate_every      epochs between two scores; 0 for none
    probe_every         epochs between two linear probes on frozen features, a multiple of evaluate_every; 0 for none
    knn_bank            at most so many training images are the neighbours of kNN, and train the probe,
    knn_queries         and so many held-out images are scored, by retrieval too
    validation_images   held-out images that the loss is asked about beside each score, in batches; None for all
    wait_minutes        how long processes wait for one another, while one of them downloads, scores or writes the page
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
    minutes: Annotated[float | None, Above(0), AtMost(MOST_MINUTES)] = None
    epochs: Annotated[int | float, Above(0), AtMost(MOST)] = 100
    max_steps: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    batch_size: Annotated[int, AtLeast(2), AtMost(MOST)] = 64  # with one image there is nothing to contrast it with
    drop_last: bool = True
    micro_batch: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    grad_checkpoint: bool = False
    seed: Annotated[int, Between(0, (1 << 63) - 1)] = 0
    precision: Literal["fp32", "bf16", "fp16", "fp64"] = "fp32"
    grad_clip: Annotated[float | None, Above(0)] = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    workers: Annotated[int | None, AtLeast(0), AtMost(MOST_WORKERS)] = None
    wait_minutes: Annotated[float, Above(0), AtMost(MOST_MINUTES)] = 60.0
    max_unreadable: Annotated[float, Between(0, 1, "a share")] = 0.05
    snapshots: Annotated[tuple[int, ...], AtLeast(1), AtMost(MOST)] = ()
    checkpoint_minutes: NotNegative = 5.0
    checkpoint_steps: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
    health_every: Count = 20
    evaluators: tuple[str, ...] = ("knn", "retrieval", "instance")
    evaluate_every: Annotated[int, AtLeast(0), AtMost(MOST)] = 1
    probe_every: Annotated[int, AtLeast(0), AtMost(MOST)] = 0
    knn_bank: Count = 5000
    knn_queries: Count = 1000
    validation_images: Annotated[int | None, AtLeast(2), AtMost(MOST)] = None
    loggers: tuple[str, ...] = ("tensorboard",)
    report: bool = True
    quiet: bool = False
    auto: tuple[str, ...] = ()  # in code alone: keys that are left to the data, the machine and the time

    def nested(self) -> dict[str, Any]:
        """The settings as a recipe has them: the method's parts beside the other sections."""
        found: dict[str, Any] = {}
        for each in fields(self):
            if each.name == "auto":
                continue
            value = getattr(self, each.name)
            found |= value if each.name == "parts" else {each.name: value}
        return found

    def flat(self) -> Flat:
        """The settings by their keys, such as `loss.temperature`."""
        return flat(self.nested(), self.parts)

    @property
    def data_options(self) -> dict[str, Any]:
        """What the data is opened with, and divided by."""
        return {key: value for key, value in self.data.items() if key not in ("name", "statistics")}

    @property
    def own_data(self) -> bool:
        """Whether the data set is one that a person made themselves, which no setting can open."""
        return bool(self.data["name"] == OWN)

    def fixed(self) -> Flat:
        """The settings that a run keeps once it has begun."""
        return {key: value for key, value in self.flat().items() if key not in RUNTIME_KEYS}


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
    """Recipe and what was given, without `auto` and without what is given anew; and the keys that are left open."""
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
    """All keys of a run with these parts."""
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
    """The same with `loss` as `loss.name`, of the parts that the chosen method has."""
    return flat(settings, parts_of(chosen_method(chosen)))


def _replaced(key: str, recipe: Flat, given: Flat) -> bool:
    """Whether a recipe's setting belongs to a part for which a person has chosen another."""
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
    """A key that only one section has may be given without it: --lr for --optimizer.lr."""
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
    """Refuses numbers that do not go together."""
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


class Component(partial[Any]):
    """A function with the arguments that a section has for it; what it refuses of them, it refuses by their keys."""

    section: str

    def __call__(self, /, *positional: Any, **arguments: Any) -> Any:
        try:
            return super().__call__(*positional, **arguments)
        except UserError as error:
            if error.setting == "views":  # of the run, and of no section
                raise
            raise error.within(self.section) from None


def component(config: Config, section: str) -> Component:
    """What a section names, with its arguments."""
    given = config.parts.get(section) or getattr(config, section)
    about = sections.section_of(section, METHODS[config.method["name"]])
    arguments = {key: value for key, value in given.items() if key != "name" and key not in about.more}
    made = Component(about.table[given["name"]], **arguments)
    made.section = section
    return made


def components(config: Config) -> dict[str, Component | None]:
    """The parts of the method; None for one that the run is to do without."""
    return {name: None if part is None else component(config, name) for name, part in config.parts.items()}


def differences(old: Config | Flat, new: Config | Flat) -> list[str]:
    """The settings that make two runs other runs, `key: old -> new`."""
    before, after = (plain(each.fixed() if isinstance(each, Config) else each) for each in (old, new))
    keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys]


def plain(value: Any) -> Any:
    """A value as YAML can write it: lists instead of tuples."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
