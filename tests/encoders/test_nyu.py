from __future__ import annotations

import pytest
import torch

from manyview.encoders import create


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_it_is_table_12_of_cmc(channels: int) -> None:
    """Layer by layer: kernels, then batch norm's scale and shift; fc7 has a bias."""
    convolutions = [64 * channels * 64, 128 * 64 * 16, 256 * 128 * 16, 256 * 256 * 9, 512 * 256 * 16]
    connected = [512 * 512 * 4 * 4, 256 * 512 + 256]
    norms = 2 * (64 + 128 + 256 + 256 + 512 + 512)
    with torch.device("meta"):
        encoder = create("nyu", channels=channels, size=128, out_dim=256)
        shapes = encoder.layer_shapes()
    assert sum(each.numel() for each in encoder.parameters()) == sum(convolutions) + sum(connected) + norms
    assert shapes == {
        "conv1": (64, 32, 32),
        "conv2": (128, 16, 16),
        "conv3": (256, 8, 8),
        "conv4": (256, 8, 8),
        "conv5": (512, 4, 4),
        "fc6": (512,),
        "fc7": (256,),
    }


def test_the_representation_is_fc6() -> None:
    with torch.device("meta"):
        assert create("nyu", size=128).dim == 512
