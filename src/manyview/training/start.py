"""The messages before the first step of a run that starts from weights: their origin, and the trained part."""

from __future__ import annotations

import os

from manyview.config.config import Config
from manyview.config.sections import usual_lr
from manyview.encoders import Encoder
from manyview.methods import Method


def weights_lines(config: Config, method: Method) -> list[str]:
    """Describes the encoders' initial weights where they are not random, the learning rate and the trained part."""
    encoder = next(iter(method.towers.encoders.values()))
    begins = [f"it starts from {_source(config, encoder)}; {_rate(config)}"] if config.encoder["pretrained"] else []
    return [*begins, *_trained_part(method)]


def _source(config: Config, encoder: Encoder) -> str:
    given, published = config.encoder["pretrained"], f"the published weights of {config.encoder['name']}"
    if given is True:
        return published
    if not os.path.isabs(given):
        return f"{published}, {given}"
    within = f", what is named {encoder.beginning}* there" if encoder.beginning else ""
    return f"{given}{within}" + (", matched by order and shapes, since names differ" if encoder.by_order else "")


def _rate(config: Config) -> str:
    """Describes the learning rate, as a share of the usual one where it is lower, and the warm-up."""
    lr, usual, warmup = config.optimizer["lr"], usual_lr(config.optimizer["name"]), config.schedule["warmup"]
    less = f", {lr / usual:.2g} of the usual {usual:g}" if lr < usual else ""
    risen = f", reached after {warmup:g} epochs" if warmup else ""
    return f"learning rate {lr:g}{less}{risen} (--lr, --schedule.warmup)"


def _trained_part(method: Method) -> list[str]:
    """Describes how much of the encoders is trained, where that is not all."""
    weights = [each for encoder in method.towers.encoders.values() for each in encoder.parameters()]
    learning = sum(each.numel() for each in weights if each.requires_grad)
    every = sum(each.numel() for each in weights)
    if learning == every:
        return []
    return [f"{learning:,} of {every:,} parameters learn ({learning / every:.1%}); the others stay as they are"]
