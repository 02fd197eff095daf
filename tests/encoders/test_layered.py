from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders.layered import Layered, backbone, scaled


def made(size: int = 8) -> Layered:
    maps = {"one": nn.Conv2d(2, 3, 3, stride=2), "two": nn.Conv2d(3, 4, 3)}
    return Layered("some", 2, size, maps, lambda features: {"last": nn.Linear(features, 5)})


def test_layers_follow_one_another_and_can_be_read() -> None:
    network = made().eval()
    x = torch.randn(2, 2, 8, 8)
    embedded, maps = backbone(network).read(network, x, None)
    one, two, last = (network.get_submodule(name) for name in ("one", "two", "last"))
    torch.testing.assert_close(embedded, last(two(one(x)).flatten(1)))
    assert {name: tuple(each.shape) for name, each in maps.items()} == {
        "one": (2, 3, 3, 3),
        "two": (2, 4, 1, 1),
        "last": (2, 5),
    }
    assert network.training is False
    assert made().training is True


def test_images_that_are_too_small_or_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="size: 4 x 4 images are too small for some; give larger ones"):
        made(4)
    with pytest.raises(ValueError, match="x: some was made for 8 x 8 images, got 8 x 9"):
        made()(torch.zeros(1, 2, 8, 9))


def test_widths_are_scaled_together() -> None:
    assert scaled((96, 256), 0.5) == (48, 128)
    with pytest.raises(ValueError, match="width: expected a number above 0"):
        scaled((96, 256), 0.001)
