"""One process or many: the only file that talks to other processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


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
    if world_size() == 1:
        return here
    flag = torch.tensor(float(here), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag > 0)


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
