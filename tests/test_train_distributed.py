"""The real training loop in two processes goes, step by step, where one process with the whole batch goes."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.contract import Sample

STEPS = 3
ALL = {
    "data.name": "(own)",
    "encoder.name": "timm/test_vit",  # layer norm, and no dropout
    "views.size": 32,
    "head.name": "mlp",  # no batch norm
    "head.dim_out": 16,
    "batch_size": 12,
    "epochs": 2,
    "max_steps": STEPS,
    "precision": "fp64",
    "optimizer.lr": 0.5,
    "knn_every": 0,
    "health_every": 1,
    "loggers": (),
    "quiet": True,
    "device": "cpu",
    "workers": 0,
}
QUEUE = {"negatives.size": 40}  # no multiple of the batch
CASES: dict[str, dict[str, Any]] = {
    "simclr": {"method.name": "simclr"},
    "moco_v2": {"method.name": "moco_v2", "method.momentum": 0.9, **QUEUE},
}
SLOW: dict[str, dict[str, Any]] = {
    "dcl in micro-batches": {"method.name": "dcl", "micro_batch": 4, "clip": 0.1},
    "jcl": {"method.name": "jcl", "method.keys": 3, "method.ramp": True, "method.momentum": 0.9, **QUEUE},
    "jcl in micro-batches": {"method.name": "jcl", "method.keys": 2, "method.momentum": 0.9, "micro_batch": 4, **QUEUE},
    "cacr_moco": {"method.name": "cacr_moco", "method.positives": 2, "method.momentum": 0.9, **QUEUE},
    "symmetric moco_v2": {"method.name": "moco_v2", "method.symmetric": True, "method.momentum": 0.9, **QUEUE},
    "keys with gradient": {
        "method.name": "multikey",
        "method.keys": 2,
        "method.momentum": None,
        "negatives.name": "batch",
        "micro_batch": 4,
    },
    "align_uniform_moco": {"method.name": "align_uniform_moco", "method.momentum": 0.9, **QUEUE},
}
Steps = list[dict[str, Tensor]]


class Noise:
    """Pictures of noise, all different."""

    views, classes, labels = ("image",), (), None
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
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # to which Fabric's double precision converts what comes out
    if world > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
        os.environ["TORCHELASTIC_RUN_ID"] = "test"  # as torchrun does
    from manyview.config import resolve
    from manyview.methods import Method
    from manyview.train import train

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
    path = f"{folder}/{world}-{rank}.pt"
    torch.save(found, f"{path}.part")
    os.replace(f"{path}.part", path)
    while not all(os.path.exists(f"{folder}/{world}-{other}.pt") for other in range(world)):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort


def ran(cases: dict[str, dict[str, Any]], folder: Path) -> list[dict[str, Steps]]:
    """What one process found, and what each of two did."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    places = [(0, 1), (0, 2), (1, 2)]
    processes = [spawn.Process(target=work, args=(*place, cases, str(folder), port)) for place in places]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=400)
    for process in processes:
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    return [torch.load(folder / f"{world}-{rank}.pt", weights_only=True) for rank, world in places]


def assert_two_are_one(cases: dict[str, dict[str, Any]], folder: Path) -> None:
    one, *two = ran(cases, folder)
    for name in cases:
        assert len(one[name]) == STEPS
        moved = [key for key, value in one[name][0].items() if not torch.equal(value, one[name][-1][key])]
        assert any(key.startswith("towers.query") for key in moved)
        assert ("negatives.0.queue.keys" in moved) == ("negatives.size" in cases[name])
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
