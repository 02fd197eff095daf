"""Runs a function in two real processes that can talk to each other."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

Found = dict[str, Any]  # tensors, numbers and text


def in_two_processes(work: Callable[[int], Found], folder: Path) -> list[Found]:
    """What `work(rank)`, a function of a module, gives in process 0 and in process 1."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_run, args=(rank, work, str(folder), port)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def _run(rank: int, work: Callable[[int], Found], folder: str, port: int) -> None:
    torch.set_num_threads(1)
    wait = datetime.timedelta(minutes=4)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=wait)
    torch.save(work(rank), f"{folder}/{rank}.part")
    os.replace(f"{folder}/{rank}.part", f"{folder}/{rank}.pt")
    while not os.path.exists(f"{folder}/{1 - rank}.pt"):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort
