"""Works on parts of a batch on several cores: a thread a part, each operation on one core.

Many small operations, each spread over all cores, wait for the slowest core every time; on a busy machine that is most
of the time. A part needs no waiting, and Python's lock is free while an operation runs.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import prod
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

from manyview.core.errors import UserError

T = TypeVar("T")
R = TypeVar("R")

_local = threading.local()


def scratch(name: str, *shape: int, device: torch.device) -> Tensor:
    """Space for intermediate results, float32, of any content; on a CPU each thread has its own and uses it again.

    The system gives pages of memory anew to whoever asks for much and frees it, and fills them with zeros, which takes
    longer than most operations. What is in it lasts until the next call with its name.
    """
    if device.type != "cpu":
        return torch.empty(shape, dtype=torch.float32, device=device)
    count, kept = prod(shape), getattr(_local, name, None)
    if kept is None or kept.numel() < count or kept.is_inference() != torch.is_inference_mode_enabled():
        kept = torch.empty(count, dtype=torch.float32, device="cpu")
        setattr(_local, name, kept)
    return kept[:count].view(shape)


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The device of that name, which must be there; "auto" is a GPU where there is one."""
    if str(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if str(name).startswith("cuda") and not torch.cuda.is_available():
        raise UserError("device", "cuda was asked for and there is none here; leave it out, or give cpu")
    try:
        torch.empty(0, device=name)
        return torch.device(name)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise UserError("device", f"{str(name)!r} cannot be used: {why}; give auto, cpu or cuda") from None


def available() -> int:
    """The cores that this process may use, of those that the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Returns [work(part) for part in parts], computed on as many cores as torch may use."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(part) for part in parts]
    inference = torch.is_inference_mode_enabled()  # known to this thread only

    def go(part: T) -> R:
        with torch.inference_mode(inference):
            return work(part)

    return list(_pool(threads, os.getpid()).map(go, parts))


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """A pool of threads in which torch uses one core; those of a parent process do not live on in its child."""
    pool = ThreadPoolExecutor(threads, "manyview", _one_core)
    together = Barrier(threads)
    list(pool.map(lambda _: together.wait(), range(threads)))  # all are there, and each has set its number
    torch.set_num_threads(threads)  # for threads that others start later
    return pool


def _one_core() -> None:
    torch.get_num_threads()  # a thread takes over the common number at its first question: ask before setting its own
    torch.set_num_threads(1)
