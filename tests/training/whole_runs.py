"""How tests disturb whole runs, and compare them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from manyview.core.sample import Sample
from manyview.training.monitor import Monitor
from tests.methods.toys.run import Pairs
from tests.tiny import STEPS
from tests.training.kills import differences

TWO_VIEWS: dict[str, Any] = {
    "method": "two_banks", "encoder": {"options": {"widths": [8, 16], "blocks": [1, 1]}}, "batch_size": 8,
    "max_steps": 4, "health_every": 2, "workers": 0, "loggers": (), "report": False, "device": "cpu",
}  # fmt: skip


class LabelledPairs(Pairs):
    """Pictures with a depth, some of which lack one of them, of two classes."""

    labels, classes = torch.arange(len(Pairs.ids)) % 2, ("even", "odd")

    def __init__(self) -> None:
        super().__init__(whole=False)

    def __getitem__(self, index: int) -> Sample:
        return replace(super().__getitem__(index), targets={"label": index % 2})


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """Does something when a step is over, and before anything of it is saved."""
    shown = Monitor.show

    def acting(monitor: Monitor) -> None:
        shown(monitor)
        if monitor.state.step == step:
            act()

    monkeypatch.setattr(Monitor, "show", acting)


def stop_with(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def differences_but_checkpoints(one: Path, other: Path) -> list[str]:
    """What differs between two runs that ended the same but saved at other steps."""
    last = [out / "checkpoints" / f"step-{STEPS:09d}.pt" for out in (one, other)]
    for out in (one, other):
        for path in (out / "checkpoints").iterdir():
            if path not in last:
                path.rename(out / path.name)
    try:
        return differences(one, other)
    finally:
        for out in (one, other):
            for path in out.glob("step-*.pt"):
                path.rename(out / "checkpoints" / path.name)
