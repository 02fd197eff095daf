"""The first layers of a ResNet for small images, and a first convolution for other images than RGB."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def cifar_stem(resnet: Any, channels: int) -> None:
    """Makes the first convolution 3x3 of stride 1 and drops the max-pool.

    As SimCLR (App. B.9) and MoCo's CIFAR-10 notebook have it, for the ResNets of timm and torchvision alike, in place.
    The new convolution is always drawn anew.
    """
    old = resnet.bn1.num_features
    convolution = nn.Conv2d(channels, old, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    resnet.conv1 = convolution.to(resnet.bn1.weight.device)
    resnet.maxpool = nn.Identity()


def adapt_input_channels(network: nn.Module, channels: int, *, keep: bool) -> None:
    """Gives the first convolution `channels` input channels, in place.

    keep: its RGB weights are carried over as timm does it (repeated and rescaled; summed for one channel). Otherwise it
    is drawn anew.
    """
    path, old = next((name, part) for name, part in network.named_modules() if isinstance(part, nn.Conv2d))
    if old.in_channels == channels:
        return
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]
        old.stride,  # type: ignore[arg-type]
        old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    ).to(old.weight.device)
    if keep:
        from timm.models import adapt_input_conv

        new.weight.data = adapt_input_conv(channels, old.weight.data)
    else:
        new.weight.data = torch.randn_like(new.weight) * old.weight.std()  # as its library draws it
    if old.bias is not None and new.bias is not None:
        new.bias.data = old.bias.data
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, new)
