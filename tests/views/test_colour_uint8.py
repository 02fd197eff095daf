"""Each operation on 8 bits is torchvision's on floats but for the rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.functional as tv
from torch import Tensor

from manyview.views import colour_uint8
from manyview.views.augmentation import Array

FACTORS = (0.0, 0.2, 0.6, 0.9, 1.0, 1.1, 1.4, 1.8)
TURNS = (-0.5, -0.31, -0.1, -0.01, 0.0, 0.02, 0.1, 0.4, 0.5)


def photos(n: int = 6, side: int = 48) -> list[Tensor]:
    """Noise, and pictures with structure at all scales, with full colours and pale ones, in 8 bits (3, side, side)."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(1, 3, side, side, generator=generator)
    smooth = [
        torch.sigmoid(
            sum(
                (F.interpolate(torch.randn(1, 3, 3 << k, 3 << k, generator=generator), (side, side)) for k in range(4)),
                torch.zeros(1, 3, side, side),
            )
            * (k + 1)
            / 2
        )
        for k in range(n - 1)
    ]
    return [picture[0].mul(255).round().byte() for picture in (noise, *smooth)]


def check(ours: Callable[[Array], Array], theirs: Callable[[Tensor], Tensor]) -> None:
    bias = []
    for picture in photos():
        before = np.ascontiguousarray(picture.permute(1, 2, 0).numpy())
        off = ours(before.copy()) - theirs(picture.float() / 255).permute(1, 2, 0).numpy() * 255
        assert abs(off).max() <= 1.01
        bias.append(off.mean())
    assert abs(np.mean(bias)) < 0.1


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_a_factor_does_what_torchvisions_does(name: str, factor: float) -> None:
    operation, oracle = getattr(colour_uint8, name), getattr(tv, f"adjust_{name}")
    check(lambda x: operation(x, factor), lambda x: oracle(x, factor))


@pytest.mark.parametrize("turns", TURNS)
def test_hue_turns_as_torchvisions(turns: float) -> None:
    check(lambda x: colour_uint8.hue(x, turns), lambda x: tv.adjust_hue(x, turns))


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.25, 0.3, 0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("kernel", [3, 5, 23])
def test_blur_is_torchvisions(sigma: float, kernel: int) -> None:
    check(lambda x: colour_uint8.blur(x, sigma, kernel), lambda x: tv.gaussian_blur(x, [kernel] * 2, [sigma] * 2))


def test_grey_and_solarise_are_torchvisions() -> None:
    check(colour_uint8.grey, lambda x: tv.rgb_to_grayscale(x, 3))
    check(colour_uint8.solarise, lambda x: tv.solarize(x, 0.5))


def test_a_jitter_runs_in_the_order_drawn_and_leaves_out_what_has_no_strength() -> None:
    picture = np.ascontiguousarray(photos()[1].permute(1, 2, 0).numpy())
    factors: Any = [1.4, 0.6, 1.3, 0.1]

    def jittered(order: int, *strengths: float) -> Array:
        return colour_uint8.jitter(picture.copy(), factors, order, strengths)

    assert np.array_equal(jittered(-1, 1, 1, 1, 0.5), picture)
    assert np.array_equal(jittered(0, 0, 0, 1, 0), colour_uint8.saturation(picture.copy(), 1.3))
    first = colour_uint8.contrast(colour_uint8.brightness(picture.copy(), 1.4), 0.6)
    last = colour_uint8.hue(colour_uint8.saturation(first, 1.3), 0.1)
    assert np.array_equal(jittered(0, 1, 1, 1, 0.5), last)
    assert not np.array_equal(jittered(23, 1, 1, 1, 0.5), last)
