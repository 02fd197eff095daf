"""What ends a run against its will is one line, and the evidence stays."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import manyview
from manyview.config.resolve import resolve
from manyview.core.sample import Batch
from manyview.training import build, failures
from manyview.training.checkpoint import Checkpoints
from manyview.training.engine import Trainer
from tests.patience import PATIENCE
from tests.tiny import noise, pictures, pretrain
from tests.training.whole_runs import at_step, stop_with


def test_a_worker_that_is_killed_is_one_line_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = pictures(tmp_path / "data", 53, sides=(32, 40)), set(multiprocessing.active_children())
    workers: list[Any] = []

    def kill_one() -> None:
        workers.extend(set(multiprocessing.active_children()) - before)
        workers[0].kill()
        os.waitid(os.P_PID, workers[0].pid, os.WEXITED | os.WNOWAIT)  # torch says so at once, by a signal

    with monkeypatch.context() as patch:
        at_step(patch, 8, kill_one)
        assert pretrain(tmp_path / "run", "--quiet", data=folder, workers=2, epochs=4) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a worker that reads images was killed, likely for lack of memory; the same command with --workers 1" in said
    gc.collect()  # what a process does when it ends
    for worker in workers:
        worker.join(PATIENCE)
    codes = [worker.exitcode for worker in workers]  # those that read held-out images among them
    assert codes[0] == -9
    assert len(codes) >= 2
    assert set(codes[1:]) == {0}
    assert pretrain(tmp_path / "run", data=folder, workers=1, epochs=4) == 0
    assert "going on after step 6 of" in capsys.readouterr().out


def test_a_full_memory_is_one_line_and_other_mistakes_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to")

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(Trainer, "gradient", full)
    assert pretrain(tmp_path, "--quiet") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the memory is full" in said
    error = RuntimeError("shapes do not fit")
    assert pretrain(tmp_path, "--quiet") == 1
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "RuntimeError: shapes do not fit" in said


def test_from_python_an_interrupt_is_a_keyboard_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 1, stop_with(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # so that no `except Exception` goes on with the next run of a sweep
        manyview.pretrain(noise(), out=str(tmp_path), batch_size=8, epochs=1)


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, lr=1e30, checkpoint_steps=1, schedule__warmup=1) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "likely the learning rate 1e+30" in said
    (evidence,) = tmp_path.glob("failed-after-step-*.pt")
    assert str(evidence) in said
    state = torch.load(evidence, weights_only=True)
    assert len(state["ids"]) == len(state["index"]) == 8
    assert state["method"]
    good = Checkpoints(tmp_path / "checkpoints").latest()
    assert good is not None
    assert all(torch.isfinite(each).all() for each in good[0]["method"].values() if each.is_floating_point())
    assert not (tmp_path / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    ("settings", "step", "cause"),
    [
        ({"precision": "fp16"}, 5, "precision: start again (another --out) with --precision bf16"),
        ({"loss.temperature": 0.001}, 5, "temperature 0.001"),
        ({"loss.temperature": 0.1}, 5, "learning rate 0.5"),
        ({"loss.name": "align_uniform"}, 5, "learning rate 0.5: start again (another --out) with --lr 0.17"),
        ({"loss.name": "align_uniform"}, 0, "data"),
    ],
)
def test_the_likely_cause_is_named(settings: dict[str, Any], step: int, cause: str, tmp_path: Path) -> None:
    config = resolve({"data.name": "photos", "augmentation.size": 32}, {"optimizer.lr": 0.5, **settings})
    method, batch = build.method(config, {"image": 3}, 8), SimpleNamespace(ids=torch.arange(2), index=torch.arange(2))
    error = failures.diverged("the loss is nan", config, step, cast(Batch, batch), method, tmp_path)
    assert f"after step {step}: the loss is nan; likely the {cause}" in str(error)
    assert error.exit_code == 1


@pytest.mark.parametrize(
    "place",
    [
        "build.check",
        "run_data.open_data",
        "build.method",
        "train.RunFolder.saved",
        "train.Loader",
        "evaluators.KnnEvaluator.__call__",
    ],
)
@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")])
def test_a_full_memory_is_one_line_from_the_first_line_on(
    place: str, error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"manyview.training.{place}", full)
    assert pretrain(tmp_path, "--quiet") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the memory is full; free some, and the same command goes on" in said


PEERS = [
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4711",
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
    "NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited or there was a network error",
    "The client socket has timed out after 60000ms while trying to connect to (host, 29500): TCPStore",
]


@pytest.mark.parametrize("text", PEERS)
def test_a_lost_process_is_one_line_of_ours(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve({"data.name": "photos"}, {})
    with pytest.raises(RuntimeError, match=re.escape(text[:20])), failures.naming_failures(config):
        raise RuntimeError(text)  # in one process it is something else
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(failures.LostProcess, match=r"^another process of"), failures.naming_failures(config):
        raise RuntimeError(text)
    with pytest.raises(RuntimeError, match="shapes"), failures.naming_failures(config):
        raise RuntimeError("shapes do not fit")
