"""How many epochs of each method fill the same time: measured before the comparison, method after method, twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from manyview.comparison.plan import Entry
from manyview.config.config import Config
from manyview.training import build
from manyview.training.run import Run

STEPS, EVERY, ROUNDS = 40, 10, 2  # of a measurement; the steps before the first line are not counted


def equal_time(runs: Sequence[Entry], minutes: float, run: Callable[[Config], None]) -> dict[str, float]:
    """Epochs by method, of the fastest round. `run` trains as a configuration says."""
    fastest: dict[str, float] = {}
    for number in range(ROUNDS):
        for entry in runs:
            folder = entry.folder.parent / "speed" / f"{entry.method}-{number}"
            run(_short(entry.config, folder))
            taken = _seconds_a_step(Run(folder))
            fastest[entry.method] = min(taken, fastest.get(entry.method, taken))
            shutil.rmtree(folder)
    images = build.images(runs[0].config).fingerprint[0]
    steps = {entry.method: images // entry.config.batch_size for entry in runs}
    return {method: round(60 * minutes / taken / steps[method], 3) for method, taken in fastest.items()}


def _short(config: Config, folder: Path) -> Config:
    return replace(
        config, out=str(folder), max_steps=STEPS, health_every=EVERY, evaluate_every=0, loggers=(), quiet=True
    )


def _seconds_a_step(run: Run) -> float:
    lines = [line for line in run.metrics if "loss" in line]
    first, last = lines[0], lines[-1]
    return float((last["seconds"] - first["seconds"]) / (last["step"] - first["step"]))
