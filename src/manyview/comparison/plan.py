"""Plans a fair comparison: its runs, their batch sizes and length, and the other settings in which they differ.

Where methods get equal time instead of equal epochs, their speeds are measured before, method after method, twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from manyview.config.config import RUNTIME_KEYS, Config
from manyview.config.keys import Flat, flag_name
from manyview.config.recipes import to_yaml
from manyview.config.sections import flat
from manyview.core.errors import UserError, hint
from manyview.core.text import duration
from manyview.methods import METHODS
from manyview.training import build, run_data
from manyview.training.batches import epoch_of
from manyview.training.launch import configured
from manyview.training.load import has_ended
from manyview.training.rehearsal import COMPARED

PER_RUN = ("batch_size", "seed", *RUNTIME_KEYS)  # what a comparison sets for each run, or no score depends on
ROUNDS = 2  # of a measurement of speed
SMALL = "augmentation.small_"  # what the settings of small crops begin with
SHARED = ("data", "augmentation", "views", "encoder")  # sections on which a score depends as much as on the method

BESIDES = 10.0  # seconds of a run beside its training: a process, the data and the scores; reasoned
WHOLE = "the picture"  # what a method with one view sees, where others see several views of it

SettingsByMethod = dict[str, dict[str, Any]]
"""{setting: {method: value}}, for settings in which methods differ although they are not their own."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a comparison: a method with a seed, in a folder of its own."""

    method: str
    seed: int
    config: Config

    @property
    def folder(self) -> Path:
        return Path(str(self.config.out))

    @property
    def name(self) -> str:
        return f"{self.method}, seed {self.seed}"


@dataclass
class MeasuredEpochs:
    """How many epochs of a method fill the time, with a check sum of the settings that this was measured with."""

    epochs: float
    of: str


@dataclass
class Plan:
    """What stays the same when a comparison is resumed: the training images, and the epochs measured for equal time."""

    images: list[Any]
    minutes: float | None = None
    epochs: dict[str, MeasuredEpochs] = field(default_factory=dict)


def plan_runs(
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    given: Flat,
    *,
    recipe: str | None = None,
    epochs: Mapping[str, float] | None = None,
) -> list[PlannedRun]:
    """Plans all runs, seed after seed, so that every method has one before any has two.

    recipe  a recipe's name or file; {method} in it stands for the method's name
    epochs  by method, where they differ

    Each has the batch that is given or that its recipe sets; `with_batches` may divide it by a rule. Runs of one seed
    begin with the same weights of the encoder and take the images in the same order: both are drawn from the seed
    alone.
    """
    _check(methods, seeds, given)
    runs = []
    for seed in seeds:
        for method in methods:
            settings = {**given, "method.name": method, "seed": seed, "out": str(out / folder_name(method, seed))}
            if epochs is not None:
                settings["epochs"] = epochs[method]
            named = recipe and recipe.replace("{method}", method)
            config = replace(configured(named, settings), auto=())  # the same for all, whatever the machine
            runs.append(PlannedRun(method, seed, _with_one_view(config)))
    return runs


def _with_one_view(config: Config) -> Config:
    """Chooses the picture itself for a method of one view, where several views are named for the others."""
    several = config.views is not None and len(config.views) > 1
    return replace(config, views=None) if several and not build.takes_many(config) else config


def extent(runs: Sequence[PlannedRun], minutes: float | None, jobs: int) -> str:
    """Says in one line how many runs there are and, where their minutes were given, how long those left take."""
    methods, seeds = ({getattr(run, name) for run in runs} for name in ("method", "seed"))
    epochs = {run.config.epochs for run in runs}
    counted = [f"{len(each)} {name}{'s' * (len(each) > 1)}" for each, name in ((methods, "method"), (seeds, "seed"))]
    each = f" of {epochs.pop():g} epochs" if len(epochs) == 1 else ""
    left = [run for run in runs if not _has_ended(run)]
    said = f"{' x '.join(counted)} = {len(runs)} run{'s' * (len(runs) > 1)}"
    said += each if minutes is None else f" of {minutes:g} min"
    said += f", {jobs} at a time" if jobs > 1 else ""
    said += f", {len(left)} of them to go" if len(left) < len(runs) else ""
    if minutes is not None:
        seconds = len(left) * (60 * minutes + BESIDES) + len({run.method for run in left}) * ROUNDS * COMPARED
        said += f": about {duration(60 * max(1, round(seconds / 60)))}"
    return said + ("; --seeds 1 for a first look" if len(seeds) > 1 else "")


def _has_ended(run: PlannedRun) -> bool:
    """Tells whether a run is complete; what is wrong with its folder is said where it is trained."""
    try:
        return has_ended(run.folder)
    except (ValueError, OSError):
        return False


def folder_name(method: str, seed: int) -> str:
    """Returns the name of a run's folder within the folder of the comparison."""
    return f"{method}-{seed}"


def differing_settings(runs: Sequence[PlannedRun], *, but: Collection[str] = ()) -> SettingsByMethod:
    """Finds the settings, except the named ones, in which methods differ beyond their own parts and batch.

    A published recipe may have its own optimiser and schedule. Other images, views or encoders are refused: they would
    be compared, and not the methods. Only a method that sees one view may see the picture of which others see parts.
    """
    settings = {
        run.method: {key: list(each) if isinstance(each, tuple) else each for key, each in run.config.flat().items()}
        for run in runs
        if run.seed == runs[0].seed
    }
    compared = {"method", *(part for run in runs for part in run.config.parts)}
    found: SettingsByMethod = {}
    for key in dict.fromkeys(key for each in settings.values() for key in each):
        section, values = key.partition(".")[0], {method: each.get(key) for method, each in settings.items()}
        if key.startswith(SMALL):  # means nothing to a method that takes no small crops
            values = {method: value for method, value in values.items() if settings[method].get("method.small")}
        same = all(value == next(iter(values.values())) for value in values.values())
        if same or section in compared or key in (*PER_RUN, *but):
            continue
        if key == "views" and len({str(value) for value in values.values() if value is not None}) == 1:
            found[key] = {method: WHOLE if value is None else value for method, value in values.items()}
        elif section in SHARED:
            raise _unfair(key, values)
        else:
            found[key] = values
    return found


def describe(settings: SettingsByMethod) -> str:
    """Writes differing settings as `optimizer.lr (dcl 0.03, simclr 0.06), epochs (dcl 200, simclr 100)`."""
    return ", ".join(
        f"{key} ({', '.join(f'{method} {value}' for method, value in values.items() if value is not None)})"
        for key, values in settings.items()
    )


def images_an_epoch(runs: Sequence[PlannedRun], images: int) -> dict[str, int]:
    """Counts by method how many images an epoch has: an incomplete last batch may be left out."""
    return {run.method: epoch_of(run.config, images).seen for run in runs}


def _unfair(key: str, values: Mapping[str, Any]) -> UserError:
    one, first = next(iter(values.items()))
    other, second = next((method, value) for method, value in values.items() if value != first)
    return UserError(
        key,
        f"{one} has {first}, {other} has {second}; methods are compared on the same images, views and encoder: "
        f"give --{flag_name(key)} for all",
    )


def _check(methods: Sequence[str], seeds: Sequence[int], given: Flat) -> None:
    for name in methods:
        if name not in METHODS:
            raise UserError("methods", f"there is no method {name!r}; {hint(name, METHODS)}")
    if not methods or len(set(methods)) < len(methods):
        raise UserError("methods", f"expected different names, got {', '.join(methods) or 'none'}")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(
            "seeds", f"expected how many, or different numbers from 0, got {', '.join(map(str, seeds)) or 0}"
        )
    for key in ("method.name", "seed", "out", "max_steps"):
        if key in flat(given):
            raise UserError(key, "a comparison sets it for each run; leave it out")


def epochs_for(
    minutes: float,
    runs: Sequence[PlannedRun],
    plan: Plan,
    measure: Callable[[Config], float],
    say: Callable[[str], None],
) -> dict[str, float]:
    """Returns the epochs by method that take so many minutes, and measures those that the plan lacks."""
    if plan.minutes not in (None, minutes):
        raise UserError("minutes", f"this comparison was begun with {plan.minutes:g}; give that, or another --out")
    plan.minutes = minutes
    of = {run.method: _fingerprint(run.config) for run in runs}
    first = [run for run in runs if run.seed == runs[0].seed]
    known = {method: each for method, each in plan.epochs.items() if each.of == of.get(method)}
    new = [run for run in first if run.method not in known]
    if new:
        say(f"measuring how fast {', '.join(run.method for run in new)} train")
        for method, epochs in equal_time(new, minutes, measure).items():
            plan.epochs[method] = MeasuredEpochs(epochs, of[method])
            say(f"{method}: {60 * minutes / epochs:.1f} s an epoch, so {epochs:g} epochs")
    return {method: plan.epochs[method].epochs for method in of}


def equal_time(runs: Sequence[PlannedRun], minutes: float, measure: Callable[[Config], float]) -> dict[str, float]:
    """Measures how many epochs of each method fill the time, by its fastest round; `measure` returns seconds a step."""
    fastest: dict[str, float] = {}
    for _ in range(ROUNDS):
        for run in runs:
            seconds = measure(run.config)
            fastest[run.method] = min(seconds, fastest.get(run.method, seconds))
    images = run_data.open_data(runs[0].config).fingerprint[0]
    steps = {run.method: epoch_of(run.config, images).batches for run in runs}
    return {method: round(60 * minutes / seconds / steps[method], 3) for method, seconds in fastest.items()}


def _fingerprint(config: Config) -> str:
    """Computes a check sum of all settings that may change a run's speed."""
    return hashlib.blake2b(to_yaml(replace(config, seed=0, out=None)).encode(), digest_size=8).hexdigest()
