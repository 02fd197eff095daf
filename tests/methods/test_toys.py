"""The floor under the methods carries what no paper has: four toys, in one process, two, micro-batches, and killed.

A toy is one file of under 60 lines in tests/methods/toys, and nothing else in the repository knows of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.toys.run import TOYS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
OPTIONS: dict[str, dict[str, Any]] = {  # the vision transformer's last block, as wide as the embeddings
    "against_maps": {"method": {"name": "against_maps", "layer": "blocks.0"}, "head": {"dim_out": 64}}
}


def run(toy: str, folder: Path, *, start: tuple[str, ...] = (), **settings: Any) -> int:
    given = json.dumps({**OPTIONS.get(toy, {}), **settings})
    command = [sys.executable, *start, "-m", "tests.methods.toys.run", toy, str(folder), given]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=600, capture_output=True, check=False).returncode


def end(folder: Path) -> dict[str, Tensor]:
    """Networks and memories after the last step."""
    state = torch.load(max((folder / "checkpoints").glob("step-*.pt")), weights_only=True)
    found: dict[str, Tensor] = state["method"]
    return found


def losses(folder: Path) -> list[float]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.fixture(scope="module", params=TOYS)
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A toy, and the folder of its run in one process."""
    folder = tmp_path_factory.mktemp(request.param) / "one"
    assert run(request.param, folder) == 0
    return request.param, folder


def assert_same(folder: Path, expected: Path, *, exactly: bool = False) -> None:
    found, other = end(folder), end(expected)
    assert list(found) == list(other)
    for name, value in other.items():
        close = torch.equal if exactly else torch.allclose
        options = {} if exactly else {"rtol": 1e-9, "atol": 1e-9}
        assert close(found[name], value, **options), name
    assert losses(folder) == pytest.approx(losses(expected), rel=1e-9, abs=1e-9)


def test_a_toy_trains_and_all_its_encoders_move(toy: tuple[str, Path]) -> None:
    name, folder = toy
    assert all(torch.isfinite(torch.tensor(losses(folder))))
    still = folder.parent / "still"
    assert run(name, still, optimizer={"name": "sgd", "lr": 1e-30}) == 0
    before, after = end(still), end(folder)
    first = [key for key in after if key.endswith("patch_embed.proj.weight")]
    assert first
    assert all(not torch.equal(before[key], after[key]) for key in first)


def test_two_processes_go_where_one_goes(toy: tuple[str, Path], tmp_path: Path) -> None:
    assert run(toy[0], tmp_path / "two", start=TWO) == 0
    assert_same(tmp_path / "two", toy[1])


def test_micro_batches_go_where_whole_batches_go(toy: tuple[str, Path], tmp_path: Path) -> None:
    assert run(toy[0], tmp_path / "micro", micro_batch=3) == 0
    assert_same(tmp_path / "micro", toy[1])


def test_a_killed_run_goes_on_to_the_same_end(toy: tuple[str, Path], tmp_path: Path) -> None:
    assert run(toy[0], tmp_path / "killed", kill_after=3) == -signal.SIGKILL
    assert run(toy[0], tmp_path / "killed") == 0
    assert_same(tmp_path / "killed", toy[1], exactly=True)


def test_two_terms_are_logged_by_name(tmp_path: Path) -> None:
    assert run("two_banks", tmp_path / "run", max_steps=1) == 0
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    parts = [line["loss/image to depth"], line["loss/depth to image"]]
    assert line["loss"] == pytest.approx(sum(parts))


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_is_one_page_that_nobody_else_knows(name: str) -> None:
    assert len((HERE / "toys" / f"{name}.py").read_text().splitlines()) < 60
    named = [file for file in (ROOT / "src").rglob("*.py") if f"{name}(" in file.read_text()]
    assert named == []
