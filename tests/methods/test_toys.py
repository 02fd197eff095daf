"""The floor under the methods carries what no paper has, in one process, two, micro-batches, and killed.

A toy is one file of under 60 lines in tests/methods/toys, and nothing else in the repository knows of it. Cross-view
prediction, patch-based contrast and small crops are tried in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.methods.toys.outcome import assert_same, end, losses, run_killed
from tests.methods.toys.run import TOYS, TRAINED, train, train_in_two
from tests.two_processes import in_two_processes

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=TRAINED)
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A toy, and the folder of its run in one process."""
    folder = tmp_path_factory.mktemp(request.param) / "one"
    train(request.param, str(folder))
    return request.param, folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of each toy in two processes."""
    folder = tmp_path_factory.mktemp("two")
    in_two_processes(partial(train_in_two, folder=str(folder), toys=TRAINED), folder)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run of each toy, killed in the middle."""
    folder = tmp_path_factory.mktemp("killed")
    run_killed(folder, TRAINED)
    return folder


def test_a_toy_trains_and_all_its_encoders_move(toy: tuple[str, Path]) -> None:
    name, folder = toy
    assert all(torch.isfinite(torch.tensor(losses(folder))))
    still = folder.parent / "still"
    train(name, str(still), optimizer={"name": "sgd", "lr": 1e-30}, max_steps=1)
    before, after = end(still), end(folder)
    first = [key for key in after if key.endswith("patch_embed.proj.weight")]
    assert first
    assert all(not torch.equal(before[key], after[key]) for key in first)


def test_two_processes_go_where_one_goes(toy: tuple[str, Path], two: Path) -> None:
    assert_same(two / toy[0], toy[1])


def test_micro_batches_go_where_whole_batches_go(toy: tuple[str, Path], tmp_path: Path) -> None:
    train(toy[0], str(tmp_path / "micro"), micro_batch=3)
    assert_same(tmp_path / "micro", toy[1])


def test_a_killed_run_goes_on_to_the_same_end(toy: tuple[str, Path], killed: Path) -> None:
    folder = killed / toy[0]
    assert [path.name for path in (folder / "checkpoints").glob("*.pt")] == ["step-000000002.pt"]
    train(toy[0], str(folder))
    assert_same(folder, toy[1], exactly=True)


def test_two_terms_are_logged_by_name(toy: tuple[str, Path]) -> None:
    name, folder = toy
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        parts = {key: value for key, value in line.items() if key.startswith("loss/")}
        if name in ("two_banks", "cmc_patch"):
            assert list(parts) == ["loss/image to depth", "loss/depth to image"]
            assert line["loss"] == pytest.approx(sum(parts.values()))
        else:
            assert not parts  # the loss alone says it


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_is_one_page_that_nobody_else_knows(name: str) -> None:
    assert len((HERE / "toys" / f"{name}.py").read_text().splitlines()) < 60
    named = [file for file in (ROOT / "src").rglob("*.py") if f"{name}(" in file.read_text()]
    assert named == []
