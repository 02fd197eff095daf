"""Signals: a run finishes its step and saves, and a second signal ends one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from manyview.training import signals as module
from manyview.training.signals import Signals, collected
from tests.patience import PATIENCE, wait_until
from tests.tiny import flags

HANGING = """
import ctypes, sys, time
from pathlib import Path
from manyview.cli.main import main
from manyview.data import Loader
from manyview.training import signals

def some_batches(self, number, *, start=0):
    for place, batch in enumerate(epoch(self, number, start=start)):
        if number == 1 and place == 1:
            Path(sys.argv[2]).touch()
            hang()
        yield batch

def in_python():
    while True:
        time.sleep(1)

def in_c():
    libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
    libc.pthread_mutex_lock(mutex)
    while True:
        libc.pthread_cond_wait(ctypes.create_string_buffer(128), mutex)

signals.STILL = signals.LEAVING = 0.1
epoch, hang = Loader.epoch, {"python": in_python, "c": in_c}[sys.argv[1]]
Loader.epoch = some_batches
sys.exit(main(sys.argv[3:]))
"""


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with collected(quiet=True) as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signals.came == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_does_what_it_always_does() -> None:
    with collected(quiet=True) as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.came == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["python", "c"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_run_that_makes_no_step_and_its_checkpoint_stays(
    where: str, number: signal.Signals, tmp_path: Path
) -> None:
    run = flags(out=tmp_path / "run", evaluate_every=0, workers=0)
    program = [sys.executable, "-c", HANGING, where, str(tmp_path / "hangs"), "pretrain", *run]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as process:
        wait_until((tmp_path / "hangs").exists, process)
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(number)
            time.sleep(0.2)
        process.kill()
        assert process.stderr is not None
        said = process.stderr.read()
    if where == "python" and number == signal.SIGINT:  # which any moment can be interrupted by, the last one too
        assert process.returncode in (128 + number, -number)
    else:
        assert process.returncode == 128 + number
        assert "Traceback" not in said
        assert said.count("ended by a second signal while nothing moved; what is saved stays") == 1
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000006.pt"]


def test_a_repeated_sigterm_ends_nothing_that_moves_or_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    signals = Signals()
    assert not signals._hangs(0.0)  # it has just begun
    monkeypatch.setattr(module, "STILL", -1.0)
    assert signals._hangs(0.0)
    assert not signals._hangs(time.monotonic() + PATIENCE)  # a signal that comes twice at once
    signals.answered = True
    assert not signals._hangs(0.0)
    signals.answered, signals._longest = False, PATIENCE
    assert not signals._hangs(0.0)


def test_a_worker_s_signals_are_not_its_parent_s() -> None:
    with collected(quiet=True) as signals:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(len(module._waking))
        assert os.waitpid(child, 0)[1] == 0
        assert signals.came == []
