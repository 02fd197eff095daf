from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from manyview.encoders import HEADS, create


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def test_with_a_classifier_of_a_thousand_it_has_the_parameters_of_caffes() -> None:
    convolutions = [
        96 * 3 * 11 * 11 + 96,
        256 * (96 // 2) * 5 * 5 + 256,
        384 * 256 * 9 + 384,
        384 * (384 // 2) * 9 + 384,
        256 * (384 // 2) * 9 + 256,
    ]
    connected = [4096 * 256 * 6 * 6 + 4096, 4096 * 4096 + 4096, 1000 * 4096 + 1000]
    with torch.device("meta"):
        encoder = create("caffenet", size=224)
        assert encoder.dim == 4096
        assert sum(convolutions) + sum(connected) == 60_965_224  # of bvlc_reference_caffenet
        assert parameters(encoder) + parameters(HEADS["linear"](4096, 1000)) == 60_965_224


@pytest.mark.parametrize(("options", "last"), [({}, "fc7"), ({"last": "fc6"}, "fc6")])
def test_its_layers(options: Any, last: str) -> None:
    with torch.device("meta"):
        shapes = create("caffenet", channels=2, size=224, **options).layer_shapes()
    maps = {"conv1": (96, 27, 27), "conv2": (256, 13, 13), "conv3": (384, 13, 13), "conv4": (384, 13, 13)}
    connected = {"fc6": (4096,), "fc7": (4096,)} if last == "fc7" else {"fc6": (4096,)}
    assert shapes == {**maps, "conv5": (256, 6, 6), **connected}


def test_weights_are_drawn_as_in_caffe() -> None:
    network = create("caffenet", size=63, last="fc6").network
    for name, std, bias in (("conv1", 0.01, 0), ("conv2", 0.01, 1), ("conv3", 0.01, 0), ("fc6", 0.005, 1)):
        layer: Any = network.get_submodule(f"{name}.0")
        torch.testing.assert_close(float(layer.weight.detach().std()), std, rtol=0.05, atol=0)
        assert set(layer.bias.tolist()) == {float(bias)}
