"""The momentum encoder's averaging, and its momentum as a pure function of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Annotated

import torch
from torch import Tensor

from manyview.core.bounds import Between
from manyview.core.errors import UserError

Schedule = Callable[[int, int], float]
Share = Annotated[float, Between(0, 1)]


def constant(step: int, total: int, *, start: Share = 0.999) -> float:
    """MoCo v1, v2 and JCL: the same at every step."""
    check("start", start)
    return start


def cosine(step: float, total: float, *, start: Share = 0.99) -> float:
    """MoCo v3 (facebookresearch/moco-v3, main_moco.py): from start to 1 along half a cosine.

    m(step) = 1 - (1 - start) (cos(pi step / total) + 1) / 2
    """
    if not 0 <= step <= total or total <= 0:
        raise UserError("step and total", f"expected 0 <= step <= total and a total above 0, got {step} of {total}")
    check("start", start)
    return 1 - (1 - start) * (math.cos(math.pi * step / total) + 1) / 2


def check(name: str, momentum: float) -> None:
    if not 0 <= momentum <= 1:
        raise UserError(name, f"expected a number from 0 to 1, got {momentum}")


@torch.no_grad()
def average_(keys: Iterable[Tensor], queries: Iterable[Tensor], momentum: float) -> None:
    """keys <- momentum keys + (1 - momentum) queries, in place, all tensors in one call.

    Keep these in float32: in bfloat16 a step of 1 - 0.999 is below the last digit, and nothing would ever move.
    """
    check("momentum", momentum)
    torch._foreach_lerp_(list(keys), list(queries), 1 - momentum)


MOMENTUM: dict[str, Callable[..., float]] = {"constant": constant, "cosine": cosine}
