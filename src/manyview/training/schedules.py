"""Learning rate schedules: pure functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from manyview.core.bounds import NotNegative

Schedule = Callable[[float, float], float]
"""(step, total) -> what the learning rate is multiplied with; in epochs or steps, both in the same."""


def constant(step: float, total: float, *, warmup: NotNegative = 0.0) -> float:
    """The same all the time, after a linear rise from 0 over `warmup`."""
    return step / warmup if step < warmup else 1.0


def cosine(step: float, total: float, *, warmup: NotNegative = 0.0) -> float:
    """Linear from 0 over `warmup`, then half a cosine down to 0 at `total` (MoCo v2 and v3, SimCLR)."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def steps(
    step: float, total: float, *, milestones: Sequence[float] = (), factor: float = 0.1, warmup: NotNegative = 0.0
) -> float:
    """Times `factor` from each milestone on (MoCo v1, CACR, CMC's probe); milestones in the unit of `step`."""
    if step < warmup:
        return step / warmup
    passed: int = sum(step >= milestone for milestone in milestones)
    return factor**passed


SCHEDULES: dict[str, Callable[..., float]] = {"constant": constant, "cosine": cosine, "steps": steps}
