"""The key branch of MoCo: its averaging, its momentum as a pure function of the step, and the shuffling of its rows."""

import math
from collections.abc import Callable, Iterable
from typing import Annotated

import torch
from torch import Tensor

from manyview.core.bounds import Between, check_bounds
from manyview.core.distributed import equal_shares, exchange, permute_rows
from manyview.core.errors import UserError
from manyview.core.rng import key, order

Schedule = Callable[[int, int], float]
SHARE = Between(0, 1)
Share = Annotated[float, SHARE]


def constant(step: int, total: int, *, start: Share = 0.999) -> float:
    """MoCo v1, v2 and JCL: the same at every step."""
    check_bounds("start", start, [SHARE])
    return start


def cosine(step: float, total: float, *, start: Share = 0.99) -> float:
    """MoCo v3 (facebookresearch/moco-v3, main_moco.py): from start to 1 along half a cosine.

    m(step) = 1 - (1 - start) (cos(pi step / total) + 1) / 2
    """
    if not 0 <= step <= total or total <= 0:
        raise UserError("step and total", f"expected 0 <= step <= total and a total above 0, got {step} of {total}")
    check_bounds("start", start, [SHARE])
    return 1 - (1 - start) * (math.cos(math.pi * step / total) + 1) / 2


@torch.no_grad()
def average_(keys: Iterable[Tensor], queries: Iterable[Tensor], momentum: float) -> None:
    """keys <- momentum keys + (1 - momentum) queries, in place, all tensors in one call.

    Keep these in float32: in bfloat16 a step of 1 - 0.999 is below the last digit, and nothing would ever move.
    """
    check_bounds("momentum", momentum, [SHARE])
    torch._foreach_lerp_(list(keys), list(queries), 1 - momentum)


def shuffled(forward: Callable[[Tensor], dict[str, Tensor]], x: Tensor, *, seed: int, step: int) -> dict[str, Tensor]:
    """forward(x) with the rows of all processes in another order on the way: MoCo's shuffling of keys (Sec. 3.3).

    The order is a function of seed, step and the number of rows alone, so that a resumed run draws the same, and any
    number of processes. Each computes an equal share of the rows in their new order. Row n of each result belongs to
    row n of x. Of several processes, none may leave this out.
    """
    counts = [int(count) for (count,) in exchange([len(x)])]
    device = x.device if len(counts) == 1 else "cpu"  # where several know who has which row without waiting for a GPU
    there, shares = order(key(seed, step, torch.arange(sum(counts), device=device))), equal_shares(sum(counts))
    made = forward(permute_rows(x, there, counts, shares))
    return {name: permute_rows(rows, there.argsort(), shares, counts) for name, rows in made.items()}


MOMENTUM: dict[str, Callable[..., float]] = {"constant": constant, "cosine": cosine}
