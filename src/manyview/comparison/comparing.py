"""`compare`: from data and names of methods to a table, and a page."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyview import build
from manyview.comparison.outcome import OUTCOME, Outcome, outcome
from manyview.comparison.plan import Entry, entries
from manyview.comparison.race import race, train_alone
from manyview.comparison.speed import equal_time
from manyview.config import Config, Flat, differences, flat, to_yaml
from manyview.evaluate.task import fingerprint
from manyview.run import CONFIG, Run
from manyview.whole import whole

PLAN = "plan.json"  # what must stay the same when a comparison goes on
SCORED = {"knn_bank": 20_000, "knn_queries": 10_000}  # where nobody says how many: a comparison wants to be exact


def compare(
    data: str | os.PathLike[str],
    methods: Sequence[str],
    *,
    seeds: int | Sequence[int] = 3,
    minutes: float | None = None,
    recipe: str | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    same_batch: bool = False,
    protocols: Sequence[str] = (),
    say: Callable[[str], None] = print,
    **settings: Any,
) -> Outcome:
    """Trains every method with every seed and says which is better, by how much, at which cost.

    methods     the first is the one that the others are compared with
    seeds       how many, from 0, or which
    minutes     the same time of training for all, instead of the same epochs: their speeds are measured first
    recipe      whose settings all have; {method} in it stands for the method's name
    jobs        runs at a time, which share the cores
    same_batch  as many images a step for all, instead of as many views (see `plan.entries`)
    protocols   of `manyview.evaluate`, for the trained encoders, beside the kNN of training
    settings    any key of `manyview show`, for all

    A run that fails is left out, and named in the outcome.

    >>> print(manyview.compare("photos", ["simclr", "dcl", "jcl"], epochs=20).table())
    """
    given = {**SCORED, **flat({**settings, "data": os.fspath(data)})}
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    folder = Path(out or Path("runs") / f"compare-{Path(os.fspath(data)).name}")
    _check(given, jobs, minutes)

    def planned(epochs: Mapping[str, float] | None = None) -> list[Entry]:
        return entries(methods, numbers, folder, given, recipe=recipe, same_batch=same_batch, epochs=epochs)

    runs = planned()
    images = build.images(runs[0].config)
    _check_labels(runs[0].config, images)
    plan = _begun(folder, images)
    if minutes is not None:
        runs = planned(_timed(folder, plan, minutes, runs, say))
    for entry in runs:
        _check_begun(entry, images)
    _write(folder / PLAN, plan)

    failed = race(runs, jobs, say)
    done = [entry for entry in runs if entry not in failed]
    if not done:
        raise ValueError(f"{folder}: every run has failed, as it says above")
    scores = {entry.folder: _judged(entry, protocols) for entry in done}
    asked = min(len(images.test or ()), done[0].config.knn_queries)
    found = outcome(folder, os.fspath(data), done, scores, asked=asked, failed=[entry.name for entry in failed])
    _write(folder / OUTCOME, found.plain())
    _report(found, say)
    return found


def _check(given: Flat, jobs: int, minutes: float | None) -> None:
    if jobs < 1:
        raise ValueError(f"jobs: expected 1 or more, got {jobs}")
    if minutes is not None and (not minutes > 0 or "epochs" in given):
        raise ValueError(f"minutes: expected a time above 0, and no epochs beside it, got {minutes}")
    if minutes is not None and jobs > 1:
        raise ValueError(
            f"jobs: {jobs} runs at a time take each other's time, so their minutes are not the same; give 1"
        )


def _check_labels(config: Config, images: build.Images) -> None:
    if images.test is None or not config.knn_every:
        raise ValueError(f"data: {config.data['name']} has no labels, or no kNN, so nothing says which is better")


def _begun(folder: Path, images: build.Images) -> dict[str, Any]:
    """The plan of the comparison in this folder, if that is of these images; else a new one."""
    mark = fingerprint(images.train)
    path = folder / PLAN
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"images": mark}
    if plan["images"] != mark:
        raise ValueError(f"out: {folder} holds a comparison on other images; give another --out")
    return plan


def _check_begun(entry: Entry, images: build.Images) -> None:
    """That what is in a run's folder is that run."""
    if (entry.folder / CONFIG).is_file():
        changed = differences(Run(entry.folder).config, build.settled(entry.config, images))
        if changed:
            raise ValueError(f"out: {entry.folder} holds a run with other settings ({changed[0]}); give another --out")


def _timed(
    folder: Path, plan: dict[str, Any], minutes: float, runs: Sequence[Entry], say: Callable[[str], None]
) -> dict[str, float]:
    """Epochs by method that take so many minutes, as measured when the comparison was begun."""
    if plan.setdefault("minutes", minutes) != minutes:
        raise ValueError(f"minutes: {folder} was begun with {plan['minutes']:g}; give that, or another --out")
    measured: dict[str, dict[str, Any]] = plan.setdefault("epochs", {})
    marks = {entry.method: _mark(entry.config) for entry in runs}
    new = [
        entry
        for entry in runs
        if entry.seed == runs[0].seed and measured.get(entry.method, {}).get("of") != marks[entry.method]
    ]
    if new:
        say(f"measuring how fast {', '.join(entry.method for entry in new)} train")
        for method, epochs in equal_time(new, minutes, run=train_alone).items():
            measured[method] = {"epochs": epochs, "of": marks[method]}
            say(f"{method}: {60 * minutes / epochs:.1f} s an epoch, so {epochs:g} epochs")
        _write(folder / PLAN, plan)
    return {method: measured[method]["epochs"] for method in marks}


def _mark(config: Config) -> str:
    """Of all settings that say how fast a run is."""
    return hashlib.blake2b(to_yaml(replace(config, seed=0, out=None)).encode(), digest_size=8).hexdigest()


def _judged(entry: Entry, protocols: Sequence[str]) -> dict[str, float]:
    """Further scores of a trained encoder, by protocol and score."""
    if not protocols:
        return {}
    from manyview.evaluate import evaluate

    found = {}
    for result in evaluate(entry.folder, None, protocols=list(protocols), untrained=False):
        name, value = next(iter(result.scores.items()))
        found[result.protocol if name == "top1" else f"{result.protocol} {name}"] = value
    return found


def _report(found: Outcome, say: Callable[[str], None]) -> None:
    """The page; the comparison has ended well, whatever becomes of it."""
    from manyview.report.page import REPORT, write
    from manyview.report.parts import reason

    try:
        say(f"report {write(found.runs(), found.folder / REPORT, compared=found)}")
    except Exception as error:
        say(f"no report was written: {reason(error)}; try `manyview report {found.folder}`")


def _write(path: Path, plain: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as draft:
        draft.write_text(json.dumps(plain, indent=1), encoding="utf-8")
