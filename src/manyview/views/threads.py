"""Parts of a batch on several cores: a thread a part, and each operation on one core.

Many small operations, each spread over all cores, wait for the slowest core every time; on a busy machine that is most
of the time. A part needs no waiting, and Python's lock is free while an operation runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Barrier
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    return torch.get_num_threads()


def each(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """[work(part) for part in parts], on as many cores as torch may use."""
    threads = cores()
    if threads == 1:
        return [work(part) for part in parts]
    inference = torch.is_inference_mode_enabled()  # known to this thread only

    def go(part: T) -> R:
        with torch.inference_mode(inference):
            return work(part)

    return list(_pool(threads, os.getpid()).map(go, parts))


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads in which torch uses one core; those of a parent process do not live on in its child."""
    pool = ThreadPoolExecutor(threads, "views", _one_core)
    together = Barrier(threads)
    list(pool.map(lambda _: together.wait(), range(threads)))  # all are there, and each has set its number
    torch.set_num_threads(threads)  # for threads that others start later
    return pool


def _one_core() -> None:
    torch.get_num_threads()  # a thread takes over the common number at its first question: ask before setting its own
    torch.set_num_threads(1)
