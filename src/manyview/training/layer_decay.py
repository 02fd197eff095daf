"""Learning rates that fall from layer to layer towards the input, for fine-tuning and for pre-training from weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from timm.models import group_parameters
from torch import nn
from torch.optim import Optimizer

from manyview.training.optimizers import DECAYS, LR_SCALE

LAYERS = 12  # of a network that does not say which weights are a layer


def decay_by_layer(optimizer: Optimizer, network: nn.Module, decay: float) -> None:
    """Splits the groups of an optimiser before its first step: a layer's rate is `decay` times that of the next.

    The layer after the last is the classifier, or the head, with the full rate. Weights that a network exempts from
    weight decay, such as positions and the class token of a ViT, have none.
    """
    layers = layer_numbers(network)
    count = max(layers.values()) + 1
    exempted: Callable[[], Any] = getattr(network, "no_weight_decay", set)
    names = set(exempted())
    own = {each: (decay ** (count - layers[name]), name in names) for name, each in network.named_parameters()}
    made: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        parts: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for each in group["params"]:
            parts.setdefault(own.get(each, (group.get(LR_SCALE, 1.0), False)), []).append(each)
        for (scale, exempt), params in parts.items():
            made.append(
                {**group, "params": params, LR_SCALE: scale, **({"weight_decay": 0.0, DECAYS: None} if exempt else {})}
            )
    optimizer.param_groups = made


def layer_numbers(network: nn.Module) -> dict[str, int]:
    """Numbers the layer that each weight belongs to, from 0 at the input.

    timm's networks define it themselves: a ViT has one layer for patches and positions and one per block, the last norm
    belonging to the last block (in MAE's code that norm has the classifier's rate). In other networks a layer is about
    a twelfth of the weights, in order.
    """
    matcher = getattr(network, "group_matcher", None)
    if matcher is not None:
        found: dict[str, int] = group_parameters(network, matcher(coarse=False), reverse=True)
        return found
    names = [name for name, _ in network.named_parameters()]
    return {name: number * min(LAYERS, len(names)) // len(names) for number, name in enumerate(names)}
