from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders import create


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize("channels", [1, 2])
def test_half_of_it_is_table_11_of_cmc(channels: int) -> None:
    """Layer by layer: kernels, biases of fully connected layers, and batch norm's scale and shift."""
    convolutions = [48 * channels * 11 * 11, 128 * 48 * 5 * 5, 192 * 128 * 9, 192 * 192 * 9, 128 * 192 * 9]
    connected = [2048 * 128 * 6 * 6 + 2048, 2048 * 2048 + 2048, 128 * 2048 + 128]
    norms = 2 * (48 + 128 + 192 + 192 + 128 + 2048 + 2048)
    with torch.device("meta"):
        encoder = create("alexnet", channels=channels, size=224, width=0.5, out_dim=128).eval()
        maps = encoder.layers(torch.zeros(1, channels, 224, 224))
    assert parameters(encoder) == sum(convolutions) + sum(connected) + norms
    assert {name: tuple(each.shape[1:]) for name, each in maps.items()} == {
        "conv1": (48, 27, 27),
        "conv2": (128, 13, 13),
        "conv3": (192, 13, 13),
        "conv4": (192, 13, 13),
        "conv5": (128, 6, 6),
        "fc6": (2048,),
        "fc7": (2048,),
        "fc8": (128,),
    }


def test_the_representation_is_fc7() -> None:
    with torch.device("meta"):
        assert create("alexnet", size=224).dim == 4096
        assert list(create("alexnet", size=224).layer_shapes())[-1] == "fc7"
