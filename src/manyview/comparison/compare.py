"""Compares methods: from data and names of methods to a table and a page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from manyview.comparison.batch_rules import SAME, check_rule, with_batches
from manyview.comparison.outcome import OUTCOME, Outcome, about_equal, collect, score_curve
from manyview.comparison.plan import (
    Plan,
    PlannedRun,
    SettingsByMethod,
    describe,
    differing_settings,
    epochs_for,
    extent,
    images_an_epoch,
    plan_runs,
)
from manyview.comparison.workers import run_all
from manyview.config.config import Config, differences
from manyview.config.keys import Flat
from manyview.config.sections import flat
from manyview.core.atomic import atomic_write, naming_setting
from manyview.core.errors import UserError
from manyview.core.json_file import read_json
from manyview.core.lock import locked
from manyview.core.text import printable, reason
from manyview.evaluate.protocols import evaluate, known
from manyview.features.feature_cache import FeatureCache
from manyview.training import build, run_data, settle
from manyview.training.batches import check_images
from manyview.training.instance import INSTANCE
from manyview.training.run import CONFIG, METRICS, Run
from manyview.training.train import time_step

PLAN = "plan.json"  # what must stay the same when a comparison goes on
SCORED = {"knn_bank": 20_000, "knn_queries": 10_000}  # by default: more than in training, for exact scores
MAX_SEEDS, MAX_JOBS, MAX_MINUTES = 1000, 1024, 366 * 24 * 60.0
LOCK = "lock"
Say = Callable[[str], None]


def compare(
    data: str | os.PathLike[str],
    methods: Sequence[str],
    *,
    seeds: int | Sequence[int] = 3,
    minutes: float | None = None,
    recipe: str | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    batch_rule: str = SAME,
    protocols: Sequence[str] = (),
    say: Say = print,
    **settings: Any,
) -> Outcome:
    """Trains every method with every seed and reports which is better, by how much, and at which cost.

    methods     the first is the baseline that the others are compared with
    seeds       their number, from 0, or a list of them
    minutes     the same training time for all, instead of the same epochs: their speeds are measured first
    recipe      whose settings all have; {method} in it stands for the method's name
    jobs        runs at the same time, which share the cores
    batch_rule  the rule for each method's batch size, a name of `BATCH_RULES`
    protocols   of `manyview.evaluate`, for the trained encoders, beside the kNN of training
    settings    any key of `manyview show`, for all

    A run that fails is left out and named in the outcome; so is a score that a run's evaluation does not give.

    >>> print(manyview.compare("photos", ["simclr", "dcl", "jcl"], epochs=20).table())
    """
    given = {**SCORED, **flat({**settings, "data": os.fspath(data)})}
    folder = Path(out or Path("runs") / f"compare-{Path(os.fspath(data)).name}")
    _check(given, jobs, minutes, seeds)
    check_rule(batch_rule)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    protocols = known(protocols) if protocols else []

    planned = partial(plan_runs, methods, numbers, folder, given, recipe=recipe)
    runs = planned()
    opened = Opened.of(runs)
    images = opened.of_run(runs[0])
    runs = with_batches(runs, batch_rule, tuple(images.views))
    notes: list[str] = []
    differing = _check_runs(runs, opened, minutes, notes.append)
    for line in (extent(runs, minutes, jobs), *notes):
        say(line)
    with _claimed(folder):
        training_images = list(images.fingerprint[:3])  # copies have other times
        plan = read_plan(folder, training_images)
        if plan.images != training_images:
            raise UserError("out", f"{folder} holds a comparison on other images; give another --out")
        _write(folder / PLAN, asdict(plan))
        if minutes is not None:
            runs = planned(epochs=epochs_for(minutes, runs, plan, time_step, say))
            runs = with_batches(runs, batch_rule, tuple(images.views))
            _write(folder / PLAN, asdict(plan))
        for run in runs:
            _check_folder(run, opened.of_run(run))
        outcome = _compared(runs, folder, os.fspath(data), images, jobs, protocols, say)
        return _written(replace(outcome, differing=differing, batch_rule=batch_rule), say)


@dataclass(frozen=True)
class Opened:
    """The data in the two forms that methods take: several views for those with an encoder per view, one for others."""

    by_kind: dict[bool, run_data.RunData]

    @classmethod
    def of(cls, runs: Sequence[PlannedRun]) -> Opened:
        kinds = {build.takes_many(run.config): run.config for run in reversed(runs)}
        return cls({many: run_data.open_data(config) for many, config in kinds.items()})

    def of_run(self, run: PlannedRun) -> run_data.RunData:
        return self.by_kind[build.takes_many(run.config)]


def read_plan(folder: Path, images: list[Any]) -> Plan:
    """Reads the plan of the comparison in this folder, or begins one for these images."""
    begun = os.path.lexists(folder / PLAN)
    plan: Plan = read_json(folder / PLAN, Plan, remedy="give another --out") if begun else Plan(images)
    return plan


def _compared(
    runs: Sequence[PlannedRun],
    folder: Path,
    data: str,
    images: run_data.RunData,
    jobs: int,
    protocols: Sequence[str],
    say: Say,
) -> Outcome:
    """Trains the runs that are not complete, and collects the outcome."""
    failed = run_all(runs, jobs, say)
    failed += [run for run in runs if run not in failed and not _scored(run, say)]
    done = [run for run in runs if run not in failed]
    if not done:
        raise UserError(None, f"{folder}: every run has failed, as it says above")
    scores = {run.folder: _evaluate(run, protocols, say) for run in done}
    queries = min(len(images.test or ()), done[0].config.knn_queries)
    failures = [run.name for run in failed]
    return collect(folder, data, done, scores, images=len(images.train), queries=queries, failed=failures)


def _written(outcome: Outcome, say: Say) -> Outcome:
    """Writes the outcome into the comparison's folder, and a page that shows it."""
    from manyview.report.page import after_training  # which imports comparisons

    _write(outcome.folder / OUTCOME, outcome.to_json())
    after_training(outcome, say=say, warn=say)
    return outcome


def _check(given: Flat, jobs: int, minutes: float | None, seeds: int | Sequence[int]) -> None:
    if not 1 <= jobs <= MAX_JOBS:
        raise UserError("jobs", f"expected 1 to {MAX_JOBS}, got {jobs}")
    count = seeds if isinstance(seeds, int) else len(seeds)
    if count > MAX_SEEDS:
        raise UserError("seeds", f"expected {MAX_SEEDS:,} at most, got {count}")
    if minutes is not None and not 0 < minutes <= MAX_MINUTES:
        raise UserError("minutes", f"expected a time above 0, of a year at most, got {minutes}")
    if minutes is not None and "epochs" in given:
        raise UserError("minutes", f"{minutes:g} and epochs {given['epochs']} are both given; give one of them")
    if minutes is not None and jobs > 1:
        raise UserError(
            "jobs", f"{jobs} runs at a time take each other's time, so their minutes are not the same; give 1"
        )


def _check_runs(runs: Sequence[PlannedRun], opened: Opened, minutes: float | None, say: Say) -> SettingsByMethod:
    """Refuses before any training what a run would be refused for, and lists other settings in which methods differ."""
    one_a_method = [run for run in runs if run.seed == runs[0].seed]
    count = len(opened.of_run(runs[0]).train)
    check_images(count)
    for run in one_a_method:
        _check_scored(run.config, opened.of_run(run))
    first = [replace(run, config=settle.settled(run.config, opened.of_run(run))) for run in one_a_method]
    for run in first:
        images = opened.of_run(run)
        build.check(run.config)
        if run.config.batch_size > count:
            given = f"{run.config.batch_size} images a step of {run.method} are more than the {count:,}"
            raise UserError("batch_size", f"{given} training images; give a smaller --batch-size")
        with suppress(RuntimeError), torch.device("meta"):  # which some networks cannot be built on
            build.method(run.config, images.channels, count, begun=True)
    differing = differing_settings(first, but=() if minutes is None else ("epochs",))
    if differing:
        say(f"the methods differ also in: {describe(differing)}")
    an_epoch = images_an_epoch(first, count)
    if minutes is None and not about_equal(list(an_epoch.values())):
        counts = ", ".join(f"{method} {seen:,}" for method, seen in an_epoch.items())
        say(
            f"warning: of {count:,} images an epoch has {counts}, since a last batch that is not full is left out; "
            "--drop-last false makes them alike"
        )
    return differing


def _check_scored(config: Config, images: run_data.RunData) -> None:
    """Refuses a run that would have no score, neither kNN with labels nor one without."""
    asked = config.evaluators if config.evaluate_every and images.test is not None else ()
    across = "retrieval" in asked and build.scored_across_views(config)
    if not ("knn" in asked and images.labelled) and not across and INSTANCE not in asked:
        why = f"{config.data['name']} has no labels, or no kNN, and too few images or no score without labels"
        asked_for = "leave --evaluators and --evaluate-every as they are"
        raise UserError("data", f"{why}, so nothing says which is better; give more images, and {asked_for}")


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Locks a comparison's folder against other processes, and refuses one that holds something else."""
    with ExitStack() as stack:
        with naming_setting("out", folder):
            there = sorted(os.listdir(folder)) if os.path.lexists(folder) else []
            others = [name for name in there if name != LOCK and not name.startswith(".")]
            if others and PLAN not in others:
                what = f"is no comparison's folder: it holds {printable(others[0])}, and no {PLAN}"
                raise UserError("out", f"{printable(str(folder))} {what}; give another --out")
            read_plan(folder, [])  # before anything is written
            stack.enter_context(locked(folder, busy="compared"))
        yield


def _scored(run: PlannedRun, say: Say) -> bool:
    """Tells whether a run has a score; one whose metrics are missing or damaged has none and is left out."""
    if score_curve(Run(run.folder)):
        return True
    say(f"{run.name} is left out: {run.folder / METRICS} holds no score; remove {run.folder} to train it again")
    return False


def _check_folder(run: PlannedRun, images: run_data.RunData) -> None:
    """Refuses a run's folder that holds a run with other settings."""
    if (run.folder / CONFIG).is_file():
        changed = differences(Run(run.folder).config, settle.settled(run.config, images))
        if changed:
            raise UserError("out", f"{run.folder} holds a run with other settings ({changed[0]}); give another --out")


def _evaluate(run: PlannedRun, protocols: Sequence[str], say: Say) -> dict[str, float]:
    """Scores a trained encoder by further protocols; one that fails is reported and left out."""
    scores = {}
    for protocol in protocols:
        try:
            (result,) = evaluate(run.folder, None, [protocol], untrained=False, cache=FeatureCache())
        except (ValueError, OSError) as error:
            say(f"{run.name}: {protocol} is left out: {reason(error)}")
            continue
        name, value = next(iter(result.scores.items()))
        scores[protocol if name == "top1" else f"{protocol} {name}"] = value
    return scores


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as draft:
        draft.write_text(json.dumps(values, indent=1), encoding="utf-8")
