"""Epochs that fill the same time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyview.comparison.plan import plan_runs
from manyview.comparison.speed import EVERY, STEPS, equal_time
from manyview.config.config import Config

SECONDS = {"simclr": 0.1, "dcl": 0.2}  # a step


def test_the_faster_gets_more_epochs_and_the_first_steps_do_not_count(tmp_path: Path) -> None:
    asked: list[str] = []

    def train(config: Config) -> None:
        """A run whose first steps take ten seconds more."""
        asked.append(config.method["name"])
        assert config.out is not None
        assert config.max_steps == STEPS
        folder, slow = Path(config.out), asked.count(config.method["name"])  # the first round is the faster one
        folder.mkdir(parents=True)
        lines = [
            {"step": step, "seconds": 10 + step * slow * SECONDS[config.method["name"]], "loss": 1.0}
            for step in range(EVERY, STEPS + 1, EVERY)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))

    runs = plan_runs(
        ["simclr", "dcl"], [0], tmp_path, {"data.name": "scenes", "data.count": 640, "augmentation.size": 16}
    )
    found = equal_time(runs, minutes=1.0, train=train)
    assert asked == ["simclr", "dcl", "simclr", "dcl"]  # in turns
    assert found == pytest.approx({"simclr": 60.0, "dcl": 30.0})  # 600 and 300 steps of ten an epoch
    assert not list((tmp_path / "speed").iterdir())
