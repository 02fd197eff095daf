"""The real training loop in two processes goes, step by step, where one process with the whole batch goes."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.lock import locked
from manyview.core.sample import Sample
from tests.patience import PATIENCE
from tests.tiny import flags, pictures, pretrain

STEPS = 3
ALL = {
    "data.name": "(own)",
    "encoder.name": "timm/test_vit",  # layer norm, and no dropout
    "augmentation.size": 32,
    "head.name": "mlp",  # no batch norm
    "head.dim_out": 16,
    "batch_size": 12,
    "epochs": 2,
    "max_steps": STEPS,
    "precision": "fp64",
    "optimizer.name": "sgd",  # which shows a gradient's length too, and does not magnify one that is 0 but for rounding
    "optimizer.lr": 0.5,
    "evaluate_every": 0,
    "health_every": 1,
    "loggers": (),
    "quiet": True,
    "device": "cpu",
    "workers": 0,
}
QUEUE = {"memory.size": 40}  # no multiple of the batch
CASES: dict[str, dict[str, Any]] = {
    "simclr": {"method.name": "simclr"},
    "moco_v2": {"method.name": "moco_v2", "momentum.start": 0.9, **QUEUE},
}
SLOW: dict[str, dict[str, Any]] = {
    "dcl in micro-batches": {"method.name": "dcl", "micro_batch": 4, "clip": 0.1},
    "jcl": {"method.name": "jcl", "method.keys": 3, "method.ramp": True, "momentum.start": 0.9, **QUEUE},
    "jcl in micro-batches": {"method.name": "jcl", "method.keys": 2, "momentum.start": 0.9, "micro_batch": 4, **QUEUE},
    "cacr_moco": {"method.name": "cacr_moco", "method.positives": 2, "momentum.start": 0.9, **QUEUE},
    "symmetric moco_v2": {"method.name": "moco_v2", "method.symmetric": True, "momentum.start": 0.9, **QUEUE},
    "keys with gradient": {
        "method.name": "multikey",
        "method.keys": 2,
        "momentum": None,
        "memory.name": "batch",
        "micro_batch": 4,
    },
    "align_uniform_moco": {"method.name": "align_uniform_moco", "momentum.start": 0.9, **QUEUE},
}
Steps = list[dict[str, Tensor]]


class Noise:
    """Pictures of noise, all different."""

    modalities, classes, labels = ("image",), (), None
    ids = torch.arange(60) * 7 + 3

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(256, (3, 32, 32), generator=generator).byte()
        return Sample(int(self.ids[index]), index, {"image": image})

    def name(self, index: int) -> str:
        return f"noise {index}"


def work(rank: int, world: int, cases: dict[str, dict[str, Any]], folder: str, port: int) -> None:
    """Trains in one of `world` processes and leaves what the networks and the queue were after each step."""
    take_place(rank, world, port)
    from manyview.config.resolve import resolve
    from manyview.methods import Method
    from manyview.training.train import train

    found: dict[str, Steps] = {}
    update = Method.update

    def noted(self: Method, *arguments: Any) -> None:
        update(self, *arguments)
        steps.append({name: value.clone() for name, value in self.state_dict().items()})

    Method.update = noted  # type: ignore[method-assign, assignment]
    for name, case in cases.items():
        steps: Steps = []
        run = train(resolve({**ALL, **case, "out": f"{folder}/{world}-{name}"}, {}), Noise())
        losses = [line["loss"] for line in run.metrics if "loss" in line]
        found[name] = [{**state, "loss": torch.tensor(loss)} for state, loss in zip(steps, losses, strict=True)]
    leave(lambda path: torch.save(found, path), f"{folder}/{world}-{{}}.pt", rank, world)


def take_place(rank: int, world: int, port: int) -> None:
    """Among `world` processes, as torchrun does it."""
    torch.set_num_threads(1)
    if world > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
        os.environ["TORCHELASTIC_RUN_ID"] = "test"


def leave(write: Callable[[str], object], name: str, rank: int, world: int) -> None:
    """Ends the process when all have written their file."""
    path = name.format(rank)
    write(f"{path}.part")
    os.replace(f"{path}.part", path)
    while not all(os.path.exists(name.format(other)) for other in range(world)):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort


def ran(cases: dict[str, dict[str, Any]], folder: Path) -> list[dict[str, Steps]]:
    """What one process found, and what each of two did."""
    port, places = free_port(), [(0, 1), (0, 2), (1, 2)]
    run_all(work, [(*place, cases, str(folder), port) for place in places])
    return [torch.load(folder / f"{world}-{rank}.pt", weights_only=True) for rank, world in places]


def free_port() -> int:
    """Below those that the system hands out, so that nobody gets it before it is used."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port := random.randint(20_000, 30_000)))
            return port


def run_all(target: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
    """Each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=target, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=PATIENCE)
    for process in processes:
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def assert_two_are_one(cases: dict[str, dict[str, Any]], folder: Path) -> None:
    one, *two = ran(cases, folder)
    for name in cases:
        assert len(one[name]) == STEPS
        moved = [key for key, value in one[name][0].items() if not torch.equal(value, one[name][-1][key])]
        assert any(key.startswith("towers.query") for key in moved)
        assert ("negatives.0.queue.keys" in moved) == ("memory.size" in cases[name])
        for each in two:
            for step, (expected, found) in enumerate(zip(one[name], each[name], strict=True), start=1):
                assert expected.keys() == found.keys()
                for key, value in expected.items():
                    where = f"{name}, step {step}, {key}: {{}}"
                    torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-9, msg=where.format)


def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    assert_two_are_one(CASES, tmp_path)


@pytest.mark.slow
def test_two_processes_train_as_one_does_in_every_kind_of_method_and_in_micro_batches(tmp_path: Path) -> None:
    assert_two_are_one(SLOW, tmp_path)


def refused(rank: int, folder: str, port: int) -> None:
    """What one of two processes says, and with which code it ends, when the first cannot go on."""
    take_place(rank, 2, port)
    from manyview.cli.main import main

    at_once, told = torch.save, []

    def full(state: Any, file: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for case in ("whole", "locked", "apart", "full"):
        out = f"{folder}/{case}-{rank}" if case == "apart" else f"{folder}/{case}"
        torch.save = full if case == "full" else at_once  # type: ignore[assignment]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = main(["pretrain", *flags(data=f"{folder}/data", out=out, max_steps=1, evaluate_every=0), "--quiet"])
        told.append((code, said.getvalue()))
    torch.save = at_once
    leave(lambda path: Path(path).write_text(json.dumps(told)), f"{folder}/told-{{}}.json", rank, 2)


STOPPED = """
import os, signal, sys
from manyview.cli.main import main
from manyview.training.run_log import RunLog

def write_and_stop(self, step, *given, **named):
    write(self, step, *given, **named)
    if step == 2:
        os.kill(os.getpid(), signal.SIGTERM)  # only the first process writes; torchrun tells the other

write, RunLog.write = RunLog.write, write_and_stop
sys.exit(main(sys.argv[1:]))
"""


def torchrun(*program: str) -> tuple[int, str]:
    """The exit code of `torchrun --nproc-per-node 2 ...`, and what it said on stderr."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stderr


def test_torchrun_is_stopped_by_a_signal_to_one_process_and_goes_on_to_the_same_end(tmp_path: Path) -> None:
    out, stopped = tmp_path / "run", tmp_path / "stopped.py"
    stopped.write_text(STOPPED)
    settings = flags(data=pictures(tmp_path / "data", 48), evaluate_every=0, health_every=1)
    _, said = torchrun(str(stopped), "pretrain", *settings, "--out", str(out))
    assert "and saved. To go on: torchrun --nproc-per-node 2 -m manyview pretrain --resume" in said
    assert not (out / "encoder.safetensors").exists()
    code, said = torchrun("-m", "manyview", "pretrain", "--resume", str(out))
    assert code == 0, said
    code, said = torchrun("-m", "manyview", "pretrain", *settings, "--out", str(tmp_path / "whole"))
    assert code == 0, said
    ends = [folder / "encoder.safetensors" for folder in (out, tmp_path / "whole")]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_of_what_the_first_process_refuses_the_others_say_nothing(tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", 32)
    assert pretrain(tmp_path / "apart-0", "--quiet", data=data, max_steps=1, evaluate_every=0) == 0
    (tmp_path / "apart-0" / "encoder.safetensors").unlink()  # so that it is not complete
    port = free_port()
    with locked(tmp_path / "locked"):
        run_all(refused, [(rank, str(tmp_path), port) for rank in range(2)])
    first, second = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(2))
    assert first[0][0] == second[0][0] == 0  # the engine says something when it is started
    assert second[1:] == [[1, ""]] * 3
    assert [code for code, _ in first[1:]] == [2, 2, 1]
    assert [said.count("\n") for _, said in first[1:]] == [1, 1, 1]
    assert "is being trained by process" in first[1][1]
    assert "processes see different checkpoints" in first[2][1]
    assert "(step 1, none); give a folder that all machines share" in first[2][1]
    assert "the disk is full" in first[3][1]
    state = torch.load(tmp_path / "whole" / "checkpoints" / "step-000000001.pt", weights_only=True)
    assert state["world"] == 2
