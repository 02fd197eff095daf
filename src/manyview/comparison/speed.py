"""Equal time instead of equal epochs: speeds are measured before the comparison, method after method, twice."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manyview.comparison.plan import PlannedRun
from manyview.config.config import Config
from manyview.config.recipes import to_yaml
from manyview.core.errors import UserError
from manyview.training import build
from manyview.training.run import Run

STEPS, EVERY, ROUNDS = 40, 10, 2  # of a measurement; the steps before the first line are not counted


def epochs_for(
    minutes: float,
    runs: Sequence[PlannedRun],
    plan: dict[str, Any],
    train: Callable[[Config], None],
    say: Callable[[str], None],
) -> dict[str, float]:
    """Gives the epochs by method that take so many minutes; those measured before are in the plan, others are added."""
    if plan.setdefault("minutes", minutes) != minutes:
        raise UserError("minutes", f"this comparison was begun with {plan['minutes']:g}; give that, or another --out")
    measured: dict[str, dict[str, Any]] = plan.setdefault("epochs", {})
    of = {run.method: _fingerprint(run.config) for run in runs}
    first = [run for run in runs if run.seed == runs[0].seed]
    new = [run for run in first if measured.get(run.method, {}).get("of") != of[run.method]]
    if new:
        say(f"measuring how fast {', '.join(run.method for run in new)} train")
        for method, epochs in equal_time(new, minutes, train).items():
            measured[method] = {"epochs": epochs, "of": of[method]}
            say(f"{method}: {60 * minutes / epochs:.1f} s an epoch, so {epochs:g} epochs")
    return {method: measured[method]["epochs"] for method in of}


def equal_time(runs: Sequence[PlannedRun], minutes: float, train: Callable[[Config], None]) -> dict[str, float]:
    """Measures how many epochs of each method fill the time, by its fastest round; `train` trains as settings say."""
    fastest: dict[str, float] = {}
    for number in range(ROUNDS):
        for run in runs:
            folder = run.folder.parent / "speed" / f"{run.method}-{number}"
            train(_short(run.config, folder))
            seconds = _seconds_a_step(Run(folder))
            fastest[run.method] = min(seconds, fastest.get(run.method, seconds))
            shutil.rmtree(folder)
    images = build.data(runs[0].config).fingerprint[0]
    steps = {run.method: images // run.config.batch_size for run in runs}
    return {method: round(60 * minutes / seconds / steps[method], 3) for method, seconds in fastest.items()}


def _fingerprint(config: Config) -> str:
    """Computes a check sum of all settings that may change a run's speed."""
    return hashlib.blake2b(to_yaml(replace(config, seed=0, out=None)).encode(), digest_size=8).hexdigest()


def _short(config: Config, folder: Path) -> Config:
    return replace(
        config, out=str(folder), max_steps=STEPS, health_every=EVERY, evaluate_every=0, loggers=(), quiet=True
    )


def _seconds_a_step(run: Run) -> float:
    lines = [line for line in run.metrics if "loss" in line]
    first, last = lines[0], lines[-1]
    return float((last["seconds"] - first["seconds"]) / (last["step"] - first["step"]))
