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

Share = Annotated[float, AtLeast(0), Below(1)]
LR_SCALE = "lr_scale"  # timm's name for what a group's learning rate is multiplied with
DECAYS = "decays"  # the weight decay of a group at first and at the end, where it is not the same
KEPT_LR = "kept_lr"  # the learning rate of a group that no schedule changes

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
    bias_scale: Positive = 1.0,
) -> torch.optim.Optimizer:
    """`LARS`, for large batches: SimCLR, MoCo v3. Biases and norms have neither decay nor the scaling.

    bias_scale  the learning rate of biases and norms is so many times that of weights: 0.024 in Barlow Twins
    """
    groups = _groups(module, decay_norms=bias_scale == 1)
    if bias_scale != 1:
        groups = [{**group, LR_SCALE: bias_scale if group["params"][0].ndim < 2 else 1.0} for group in groups]
    return LARS(groups, lr, momentum=momentum, weight_decay=weight_decay, trust=trust)


def adamw(
    module: nn.Module,
    *,
    lr: Positive = 1e-3,
    betas: Betas = (0.9, 0.999),
    weight_decay: NotNegative = 0.02,
    weight_decay_end: Annotated[float | None, AtLeast(0)] = None,
    decay_norms: bool = False,
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter, ICLR 2019). decay_norms as for `sgd`.

    weight_decay_end  where the weight decay goes along half a cosine, from the first step to the last: 0.4 in DINO,
                      which begins with 0.04; None: it stays
    """
    groups = _groups(module, decay_norms=decay_norms)
    if weight_decay_end is not None:
        ends = {DECAYS: (weight_decay, weight_decay_end)}
        groups = [group if "weight_decay" in group else {**group, **ends} for group in groups]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, weight_decay=weight_decay)


def adam(
    module: nn.Module, *, lr: Positive = 1e-3, betas: Betas = (0.9, 0.999), weight_decay: NotNegative = 0.0
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba, ICLR 2015), whose weight decay goes into the gradient: HN-CL's and DCL's public code."""
    return torch.optim.Adam(_groups(module), lr=lr, betas=betas, weight_decay=weight_decay)


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": sgd, "lars": lars, "adamw": adamw, "adam": adam}


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Sets the learning rate of every group, in proportion where layers have their own (`layer_decay`).

    Groups that `keep_lr` has made stay as they are.
    """
    for group in optimizer.param_groups:
        group["lr"] = group.get(KEPT_LR, lr * group.get(LR_SCALE, 1.0))


def set_decay(optimizer: torch.optim.Optimizer, done: float) -> None:
    """Sets the weight decay of groups that have one at first and one at the end, where a share of the run is done."""
    for group in optimizer.param_groups:
        if group.get(DECAYS) is not None:
            start, end = group[DECAYS]
            group["weight_decay"] = end + (start - end) * cosine(done, 1.0)


def keep_lr(optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
    """Puts a module's parameters into groups of their own, whose learning rate stays what it is now.

    To be called before the optimiser's first step. SimSiam's predictor, by its code's `--fix-pred-lr`.
    """
    kept, made = set(module.parameters()), []
    for group in optimizer.param_groups:
        own = [each for each in group["params"] if each in kept]
        others = [each for each in group["params"] if each not in kept]
        made += [{**group, "params": others}] if others else []
        made += [{**group, "params": own, KEPT_LR: group["lr"]}] if own else []
    optimizer.param_groups = made


def constant(step: float, total: float, *, warmup: NotNegative = 0.0) -> float:
    """The same all the time, after a linear rise from 0 over `warmup`."""
    return step / warmup if step < warmup else 1.0


def cosine(step: float, total: float, *, warmup: NotNegative = 0.0, end: Share = 0.0) -> float:
    """Linear from 0 over `warmup`, then half a cosine down to `end` at `total` (MoCo v2 and v3, SimCLR).

    end  a share of the rate, 0.001 in the code of SwAV, Barlow Twins and VICReg
    """
    if step < warmup:
        return step / warmup
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def steps(
    step: float, total: float, *, milestones: Sequence[float] = (), factor: float = 0.1, warmup: NotNegative = 0.0
) -> float:
    """Times `factor` from each milestone on (MoCo v1, CACR, CMC's probe); milestones in the unit of `step`."""
    if step < warmup:
        return step / warmup
    passed: int = sum(step >= milestone for milestone in milestones)
    return factor**passed


SCHEDULES: dict[str, Callable[..., float]] = {"constant": constant, "cosine": cosine, "steps": steps}
