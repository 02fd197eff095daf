"""Mixup and CutMix: two pictures of a batch become one, and their labels shares of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torchvision import tv_tensors
from torchvision.transforms.v2 import CutMix, MixUp

from manyview.core.sample import Views
from manyview.evaluate.classifier import Batches

SWITCH = 0.5  # the chance of CutMix where both are wanted, timm's and DeiT's


def mixed(batches: Batches, classes: int, *, mixup: float = 0.0, cutmix: float = 0.0) -> Batches:
    """The same batches with mixed views, and labels (n, classes) that say how much of each class there is.

    Each batch is mixed by one of them: mixup (Zhang et al., ICLR 2018) or CutMix (Yun et al., ICCV 2019), by a share
    that is drawn from Beta(alpha, alpha). It draws from torch's own generator. All views of a sample are mixed alike.

    mixup, cutmix  alpha of each; 0 leaves it out, and with both at 0 the batches stay as they are
    """
    if not mixup and not cutmix:
        return batches

    def epoch(number: int) -> Iterator[tuple[Views, Tensor]]:
        for views, labels in batches.epoch(number):
            cut = bool(cutmix) and (not mixup or bool(torch.rand(()) < SWITCH))
            yield mix(views, labels, classes, CutMix if cut else MixUp, cutmix if cut else mixup)

    return Batches(batches.count, epoch)


def mix(views: Views, labels: Tensor, classes: int, kind: Any, alpha: float) -> tuple[Views, Tensor]:
    """Views and labels mixed by one of torchvision's transforms, the same draw for all views."""
    pictures = [tv_tensors.Image(copy) for copies in views.values() for copy in copies]
    transform = kind(alpha=alpha, num_classes=classes, labels_getter=lambda inputs: inputs[-1])
    *made, shares = transform(*pictures, labels)
    plain = iter([each.as_subclass(Tensor) for each in made])
    return {name: [next(plain) for _ in copies] for name, copies in views.items()}, shares
