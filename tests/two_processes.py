"""Runs a function in two real processes, or more, that can talk to each other."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.patience import PATIENCE

Found = dict[str, Any]  # tensors, numbers and text


def in_two_processes(work: Callable[[int], Found], folder: Path) -> list[Found]:
    """What `work(rank)`, a function of a module, gives in process 0 and in process 1."""
    return in_processes(2, work, folder)


def in_processes(count: int, work: Callable[[int], Found], folder: Path) -> list[Found]:
    """What `work(rank)`, a function of a module, gives in each of so many processes.

    To training they are what torchrun has started.
    """
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_run, args=(rank, count, work, str(folder))) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=PATIENCE)
    for process in processes:
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0] * count
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(count)]


def _run(rank: int, count: int, work: Callable[[int], Found], folder: str) -> None:
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(value) for name, value in place.items()}, TORCHELASTIC_RUN_ID="test")
    wait = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=count, timeout=wait)
    torch.save(work(rank), f"{folder}/{rank}.part")
    os.replace(f"{folder}/{rank}.part", f"{folder}/{rank}.pt")
    while not all(os.path.exists(f"{folder}/{other}.pt") for other in range(count)):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort
