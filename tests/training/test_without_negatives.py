"""Whole runs of methods without negatives, and of supervised contrast: in one process, two, micro-batches, killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.methods.toys.outcome import assert_same, run_killed
from tests.methods.toys.run import WITHOUT_NEGATIVES, train, train_in_two
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
    for name in WITHOUT_NEGATIVES:
        train(name, str(folder / name))
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each run in two processes."""
    folder = tmp_path_factory.mktemp("two")
    in_two_processes(partial(train_in_two, folder=str(folder), toys=WITHOUT_NEGATIVES), folder)
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each run, killed in the middle."""
    folder = tmp_path_factory.mktemp("killed")
    run_killed(folder, WITHOUT_NEGATIVES)
    return folder


@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_two_processes_go_where_one_goes(name: str, one: Path, two: Path) -> None:
    assert_same(two / name, one / name)


@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_micro_batches_go_where_whole_batches_go(name: str, one: Path, tmp_path: Path) -> None:
    train(name, str(tmp_path / "micro"), micro_batch=3)
    assert_same(tmp_path / "micro", one / name)


@pytest.mark.parametrize("name", WITHOUT_NEGATIVES)
def test_a_killed_run_goes_on_to_the_same_end(name: str, one: Path, killed: Path) -> None:
    train(name, str(killed / name))
    assert_same(killed / name, one / name, exactly=True)
