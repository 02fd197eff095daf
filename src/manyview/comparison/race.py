"""Runs a comparison: one process a run, some at a time, and goes on where it was."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyview import build
from manyview.comparison.outcome import OUTCOME, Outcome, curve, outcome
from manyview.comparison.plan import Entry, entries
from manyview.comparison.speed import equal_time
from manyview.config import Config, Flat, differences, flat, to_yaml
from manyview.cores import available
from manyview.run import CONFIG, ENCODER, Run
from manyview.whole import whole

PLAN, SETTINGS = "plan.json", "settings"
LATER = "what is done is kept: the same command goes on"


class Failed(ValueError):
    """A run of the comparison has ended without an encoder."""

    exit_code = 1


class Stopped(KeyboardInterrupt):
    """Somebody has stopped the comparison; its runs are saved."""


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

    >>> print(manyview.compare("photos", ["simclr", "dcl", "jcl"], epochs=20).table())
    """
    given = flat({**settings, "data": os.fspath(data)})
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    folder = Path(out or Path("runs") / f"compare-{Path(os.fspath(data)).name}")
    _check(given, jobs, minutes)

    def planned(epochs: Mapping[str, float] | None = None) -> list[Entry]:
        return entries(methods, numbers, folder, given, recipe=recipe, same_batch=same_batch, epochs=epochs)

    runs = planned()
    images = build.images(runs[0].config)
    _check_labels(runs[0].config, images)
    if minutes is not None:
        runs = planned(_timed(folder, minutes, runs, say))
    for entry in runs:
        _check_begun(entry, images)
    _race(runs, jobs, say)
    found = outcome(folder, os.fspath(data), runs, {entry.folder: _judged(entry, protocols) for entry in runs})
    with whole(folder / OUTCOME) as draft:
        draft.write_text(json.dumps(found.plain(), indent=1), encoding="utf-8")
    _report(found, say)
    return found


def _report(found: Outcome, say: Callable[[str], None]) -> None:
    """The page; the comparison has ended well, whatever becomes of it."""
    from manyview.report.page import REPORT, write
    from manyview.report.parts import reason

    try:
        say(f"report {write(found.runs(), found.folder / REPORT, compared=found)}")
    except Exception as error:
        say(f"no report was written: {reason(error)}; try `manyview report {found.folder}`")


def _check(given: Flat, jobs: int, minutes: float | None) -> None:
    if jobs < 1:
        raise ValueError(f"jobs: expected 1 or more, got {jobs}")
    if minutes is not None and (not minutes > 0 or "epochs" in given):
        raise ValueError(f"minutes: expected a time above 0, and no epochs beside it, got {minutes}")


def _check_labels(config: Config, images: build.Images) -> None:
    if images.test is None or not config.knn_every:
        raise ValueError(f"data: {config.data['name']} has no labels, or no kNN, so nothing says which is better")


def _check_begun(entry: Entry, images: build.Images) -> None:
    """That what is in a run's folder is that run."""
    if (entry.folder / CONFIG).is_file():
        changed = differences(Run(entry.folder).config, build.settled(entry.config, images))
        if changed:
            raise ValueError(f"out: {entry.folder} holds a run with other settings ({changed[0]}); give another --out")


def _timed(folder: Path, minutes: float, runs: Sequence[Entry], say: Callable[[str], None]) -> dict[str, float]:
    """Epochs by method that take so many minutes, as measured when the comparison was begun."""
    path = folder / PLAN
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if known and known["minutes"] != minutes:
        raise ValueError(f"minutes: {folder} was begun with {known['minutes']:g}; give that, or another --out")
    epochs: dict[str, float] = known.get("epochs", {})
    new = [entry for entry in runs if entry.method not in epochs and entry.seed == runs[0].seed]
    if new:
        say(f"measuring how fast {', '.join(entry.method for entry in new)} train")
        epochs |= equal_time(new, minutes, run=lambda config: _finish(_started(config, 1, quiet=True), config))
        folder.mkdir(parents=True, exist_ok=True)
        with whole(path) as draft:
            draft.write_text(json.dumps({"minutes": minutes, "epochs": epochs}), encoding="utf-8")
    return epochs


def _race(runs: Sequence[Entry], jobs: int, say: Callable[[str], None]) -> None:
    """Trains what is not trained yet, at most `jobs` at a time."""
    waiting = [entry for entry in runs if not (entry.folder / ENCODER).is_file()]
    done = len(runs) - len(waiting)
    if done:
        say(f"{done} of {len(runs)} runs are done already")
    going: dict[Entry, subprocess.Popen[bytes]] = {}
    try:
        while waiting or going:
            while waiting and len(going) < jobs:
                entry = waiting.pop(0)
                going[entry] = _started(entry.config, jobs, quiet=jobs > 1)
            for entry in [each for each, process in going.items() if process.poll() is not None]:
                _finish(going.pop(entry), entry.config)
                done += 1
                say(f"{done} of {len(runs)}: {entry.name}: {_came_of(entry)}")
            time.sleep(0.2)
    except BaseException as error:
        _stop(going.values())
        if isinstance(error, KeyboardInterrupt):
            say(f"stopped after {done} of {len(runs)} runs; {LATER}")
            raise Stopped from None
        raise


def _started(config: Config, jobs: int, *, quiet: bool) -> subprocess.Popen[bytes]:
    """A process of its own for a run: its peak of memory is its own, and it starts with a clean slate."""
    settings = Path(str(config.out)).parent / SETTINGS / f"{Path(str(config.out)).name}.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(to_yaml(replace(config, quiet=quiet, report=False)), encoding="utf-8")
    environment = dict(os.environ)
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = str(max(1, available() // jobs))
    return subprocess.Popen([sys.executable, "-m", "manyview.comparison.one", str(settings)], env=environment)


def _finish(process: subprocess.Popen[bytes], config: Config) -> None:
    code = process.wait()
    if code in (128 + 2, 128 + 15):
        raise KeyboardInterrupt
    if code:
        again = f"manyview pretrain --recipe {shlex.quote(str(Path(str(config.out)) / CONFIG))}"
        raise Failed(f"{config.out}: this run has failed, as it says above; {again} runs it alone; {LATER}")


def _stop(processes: Any) -> None:
    """Lets runs save themselves; a Ctrl-C has reached them already."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def _came_of(entry: Entry) -> str:
    points = curve(Run(entry.folder))
    return f"kNN {points[-1].score:.1%}, untrained {points[0].score:.1%}, {points[-1].seconds:,.0f} s of training"


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
