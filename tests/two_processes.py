"""Runs a function in two real processes that can talk to each other."""

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
    """What `work(rank)`, a function of a module, gives in process 0 and in process 1.

    To training they are what torchrun has started.
    """
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_run, args=(rank, work, str(folder))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=PATIENCE)
    for process in processes:
        if process.exitcode is None:
            process.kill()
    assert [process.exitcode for process in processes] == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _run(rank: int, work: Callable[[int], Found], folder: str) -> None:
    torch.set_num_threads(1)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    os.environ.update({name: str(value) for name, value in place.items()}, TORCHELASTIC_RUN_ID="test")
    wait = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=wait)
    torch.save(work(rank), f"{folder}/{rank}.part")
    os.replace(f"{folder}/{rank}.part", f"{folder}/{rank}.pt")
    while not os.path.exists(f"{folder}/{1 - rank}.pt"):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort
