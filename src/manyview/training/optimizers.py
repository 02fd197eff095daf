"""Optimisers, LARS among them, and learning rate schedules, which are pure functions of the step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from manyview.core.bounds import AtLeast, Below, NotNegative, Positive
from manyview.core.errors import UserError

Momentum = Annotated[float, AtLeast(0), Below(1)]
Betas = Annotated[tuple[float, float], AtLeast(0), Below(1)]

Schedule = Callable[[float, float], float]
"""(step, total) -> what the learning rate is multiplied with; in epochs or steps, both in the same."""


class LARS(torch.optim.Optimizer):
    """Layer-wise adaptive rate scaling (You et al., 2017), as in facebookresearch/moco-v3.

    A tensor w of two or more axes moves by momentum on u = (g + decay w) trust |w| / |g + decay w|; biases and norms,
    of one axis, have neither decay nor the scaling. Where either length is 0 the scaling is left out.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay), ("trust", trust)):
            if not 0 <= value < math.inf:
                raise UserError(name, f"expected a number of at least 0, got {value}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [each for each in group["params"] if each.grad is not None]
            if params:
                updates = [_scaled(each, group["weight_decay"], group["trust"]) for each in params]
                held = [self.state[each].setdefault("momentum", torch.zeros_like(each)) for each in params]
                torch._foreach_mul_(held, group["momentum"])
                torch._foreach_add_(held, updates)
                torch._foreach_add_(params, held, alpha=-group["lr"])


def _scaled(parameter: Tensor, decay: float, trust: float) -> Tensor:
    assert parameter.grad is not None
    if parameter.ndim < 2:
        return parameter.grad
    update = parameter.grad.add(parameter, alpha=decay)
    length, change = parameter.norm(), update.norm()
    ratio = torch.where((length > 0) & (change > 0), trust * length / change, 1.0)
    return update.mul_(ratio)


def _groups(module: nn.Module, *, decay_norms: bool = True) -> list[dict[str, Any]]:
    """Groups the trained parameters; without `decay_norms`, those of one axis (biases, norms) have no weight decay."""
    trained = [each for each in module.parameters() if each.requires_grad]
    decayed = [each for each in trained if decay_norms or each.ndim > 1]
    apart = [] if decay_norms else [each for each in trained if each.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": apart, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def sgd(
    module: nn.Module,
    *,
    lr: Positive = 0.06,
    momentum: Momentum = 0.9,
    weight_decay: NotNegative = 5e-4,
    nesterov: bool = False,
    decay_norms: bool = True,
) -> torch.optim.Optimizer:
    """Stochastic gradient descent with momentum. decay_norms: biases and norms decay as well, as in MoCo and CACR."""
    params = _groups(module, decay_norms=decay_norms)
    return torch.optim.SGD(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)


def lars(
    module: nn.Module,
    *,
    lr: Positive = 0.3,
    momentum: Momentum = 0.9,
    weight_decay: NotNegative = 1e-6,
    trust: NotNegative = 0.001,
) -> torch.optim.Optimizer:
    """`LARS`, for large batches: SimCLR, MoCo v3. Biases and norms have neither decay nor the scaling."""
    return LARS(_groups(module), lr, momentum=momentum, weight_decay=weight_decay, trust=trust)


def adamw(
    module: nn.Module,
    *,
    lr: Positive = 1e-3,
    betas: Betas = (0.9, 0.999),
    weight_decay: NotNegative = 0.02,
    decay_norms: bool = False,
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019). decay_norms as for `sgd`."""
    params = _groups(module, decay_norms=decay_norms)
    return torch.optim.AdamW(params, lr=lr, betas=betas, weight_decay=weight_decay)


def adam(
    module: nn.Module, *, lr: Positive = 1e-3, betas: Betas = (0.9, 0.999), weight_decay: NotNegative = 0.0
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba, ICLR 2015), whose weight decay goes into the gradient: HN-CL's and DCL's public code."""
    return torch.optim.Adam(_groups(module), lr=lr, betas=betas, weight_decay=weight_decay)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": sgd, "lars": lars, "adamw": adamw, "adam": adam}


LR_SCALE = "lr_scale"  # timm's name for what a group's learning rate is multiplied with


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group, in proportion where layers have their own (`layer_decay`)."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get(LR_SCALE, 1.0)


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
