"""Whole runs of CMC where some images lack a view: in one process, two, micro-batches, and killed.

Negatives are the batch, banks (softmax, and NCE with a fixed and a running Z) or queues.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.methods.toys.outcome import assert_same, end, run_killed
from tests.methods.toys.run import CMC, train, train_in_two
from tests.two_processes import in_two_processes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each run in one process."""
    folder = tmp_path_factory.mktemp("one")
    for name in CMC:
        train(name, str(folder / name))
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each run in two processes."""
    folder = tmp_path_factory.mktemp("two")
    in_two_processes(partial(train_in_two, folder=str(folder), toys=CMC), folder)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each run, killed in the middle."""
    folder = tmp_path_factory.mktemp("killed")
    run_killed(folder, CMC)
    return folder


@pytest.mark.parametrize("name", CMC)
def test_two_processes_go_where_one_goes(name: str, one: Path, two: Path) -> None:
    assert_same(two / name, one / name)


@pytest.mark.parametrize("name", CMC)
def test_micro_batches_go_where_whole_batches_go(name: str, one: Path, tmp_path: Path) -> None:
    train(name, str(tmp_path / "micro"), micro_batch=3)
    assert_same(tmp_path / "micro", one / name)


@pytest.mark.parametrize("name", CMC)
def test_a_killed_run_goes_on_to_the_same_end(name: str, one: Path, killed: Path) -> None:
    train(name, str(killed / name))
    assert_same(killed / name, one / name, exactly=True)


def test_what_is_kept_between_steps_is_in_the_checkpoint(one: Path) -> None:
    state = end(one / "cmc_bank_nce")
    assert all(float(state[f"memories.{view}.bank.log_partition"]) > -math.inf for view in ("image", "depth"))
    assert "memories.depth.queue.keys" in end(one / "cmc_moco")


def test_every_edge_has_its_loss_and_where_it_holds_its_bound(one: Path) -> None:
    for name in CMC:
        for line in map(json.loads, (one / name / "metrics.jsonl").read_text().splitlines()):
            edges = ["image to depth", "depth to image"]
            assert [key for key in line if key.startswith("loss/")] == [f"loss/{edge}" for edge in edges]
            bounds = [key for key in line if key.startswith("bound/")]
            assert bounds == ([] if "nce" in name else [f"bound/{edge}" for edge in edges])
            if name == "cmc_bank":
                for edge in edges:
                    assert line[f"bound/{edge}"] == pytest.approx(math.log(6) - line[f"loss/{edge}"])
