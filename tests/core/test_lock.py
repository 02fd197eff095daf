"""A folder that one process at a time works in."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from manyview.core import lock
from manyview.core.errors import UserError
from manyview.core.lock import InUse, is_free, locked
from tests.patience import PATIENCE

FORK = multiprocessing.get_context("fork")  # real processes that need not import torch again, and must not compute


def hold(folder: Path, told: Connection) -> None:
    with locked(folder):
        worker = FORK.Process(target=time.sleep, args=(PATIENCE,))
        worker.start()
        told.send(worker.pid)
        time.sleep(PATIENCE)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[tuple[ForkProcess, int]]:
    """A process that holds the lock and has a forked worker."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hold, args=(tmp_path / "run", theirs))
    process.start()
    assert ours.poll(PATIENCE)
    worker = int(ours.recv())
    yield process, worker
    process.kill()
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)


def test_a_second_process_is_told_who_works_there_and_a_killed_one_holds_nothing(
    tmp_path: Path, holder: tuple[ForkProcess, int]
) -> None:
    process, worker = holder
    who = f"process {process.pid} on {re.escape(socket.gethostname())}"
    with pytest.raises(InUse, match=rf"/run is being trained by {who}; .*another --out"), locked(tmp_path / "run"):
        pass
    process.kill()
    process.join()
    os.kill(worker, 0)  # the worker lives on
    with locked(tmp_path / "run"):
        assert (tmp_path / "run" / "lock").read_text() == f"{os.getpid()} {socket.gethostname()}"


def test_a_lock_is_given_back_and_not_given_twice(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path), pytest.raises(InUse), locked(tmp_path):
            pass
    assert not lock._held


def test_a_file_system_without_locks_does_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path):
        pass


def test_who_comes_second_is_told_what_is_being_made_and_what_to_give_instead(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(InUse, match=r"/e\.npz is being written by process \d+ on .*; wait for it, .* another --to$"),
        locked(tmp_path, busy="written", result=tmp_path / "e.npz", flag="--to"),
    ):
        pass


def test_a_file_of_that_name_that_is_no_lock_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "text": lambda path: path.write_text("my own words"),
        "number": lambda path: path.write_text("42"),
        "long": lambda path: path.write_text("1 " + 1000 * "x"),
        "link": lambda path: path.symlink_to(tmp_path / "number" / "lock"),
        "nowhere": lambda path: path.symlink_to(tmp_path / "new"),
        "pipe": os.mkfifo,
    }
    for name, make in makers.items():
        (tmp_path / name).mkdir()
        make(tmp_path / name / "lock")
        with (
            pytest.raises(UserError, match="lock is no lock of manyview's; give another --out"),
            locked(tmp_path / name),
        ):
            pass
    assert (tmp_path / "text" / "lock").read_text() == "my own words"
    assert (tmp_path / "number" / "lock").read_text() == "42"
    assert not (tmp_path / "new").exists()


def test_a_folder_is_free_while_nobody_works_in_it(tmp_path: Path) -> None:
    assert is_free(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
