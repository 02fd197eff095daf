"""What came of runs: compared with one another, and of runs that were killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]


def end(folder: Path) -> dict[str, Tensor]:
    """Networks and memories after the last step."""
    state = torch.load(max((folder / "checkpoints").glob("step-*.pt")), weights_only=True)
    found: dict[str, Tensor] = state["method"]
    return found


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def assert_same(folder: Path, expected: Path, *, exactly: bool = False) -> None:
    found, other = end(folder), end(expected)
    assert list(found) == list(other)
    for name, value in other.items():
        close = torch.equal if exactly else torch.allclose
        options = {} if exactly else {"rtol": 1e-9, "atol": 1e-9}
        assert close(found[name], value, **options), name
    assert losses(folder) == pytest.approx(losses(expected), rel=1e-9, abs=1e-9)


def run_killed(folder: Path, toys: Iterable[str]) -> None:
    """Trains each toy in FOLDER/TOY until it is killed in the middle."""
    command = [sys.executable, "-m", "tests.methods.toys.run", str(folder), *toys]
    done = subprocess.run(command, cwd=ROOT, timeout=PATIENCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
