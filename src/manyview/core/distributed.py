"""One process or many: the only file that talks to other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from manyview.core.errors import UserError

Gather = Callable[[Tensor], Tensor]
"""Joins the rows of all processes, with gradient; `alone` in one process."""


def no_gather(rows: Tensor) -> Tensor:
    """The gather of a single process: the rows themselves."""
    return rows


class RemoteError(UserError):
    """Another process has failed, and says why."""

    told, exit_code = True, 1  # for the command line: nothing is left to say


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes in the order of their ranks, with gradient; processes may hold different numbers of
    rows.

    With contiguous shards of a batch this gives back the batch. In one process it is the tensor itself, so that a loss
    can see that its keys are its queries.

    A loss that averages gathered values is the whole batch's loss in every process. Backward adds up what all processes
    ask of a row, so each gradient is `world_size()` times the whole batch's: the average over processes that
    DistributedDataParallel takes makes it equal.
    """
    return rows if world_size() == 1 else _Gather.apply(rows)


def any_of(here: bool, device: torch.device) -> bool:
    """Whether it is so in any process. To be asked by all of them."""
    return first_of(here, device) is not None


def first_of(here: bool, device: torch.device) -> int | None:
    """The first process in which it is so. To be asked by all of them."""
    world = world_size()
    if world == 1:
        return 0 if here else None
    number = torch.tensor(rank() if here else world, device=device)
    dist.all_reduce(number, dist.ReduceOp.MIN)
    return int(number) if number < world else None


@contextmanager
def fail_together(device: torch.device) -> Iterator[None]:
    """Something that all processes do, or some of them, and that succeeds in all or ends all.

    The first in which it fails raises its own error, the others `RemoteError`. To be entered by all of them; within, no
    process may wait for another.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        error = caught
    try:
        failed = first_of(error is not None, device)
        if error is not None and failed == rank():
            raise error
        if failed is not None:
            raise RemoteError(None, f"process {failed} has failed and says why")
    finally:
        error = None  # which holds this frame: a loader's workers end only when nobody holds the loader any more


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        lengths = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(world_size())]
        dist.all_gather(lengths, torch.tensor([len(rows)], device=rows.device))
        sizes = torch.cat(lengths).tolist()
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        blocks = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(blocks, padded)
        start = sum(sizes[: dist.get_rank()])
        ctx.mine = slice(start, start + len(rows))
        return torch.cat([block[:size] for block, size in zip(blocks, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        mine: slice = ctx.mine
        return total[mine]
