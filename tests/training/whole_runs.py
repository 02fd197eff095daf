"""How tests disturb whole runs, and compare them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from manyview.training.monitor import Monitor
from tests.tiny import STEPS
from tests.training.kills import differences


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
