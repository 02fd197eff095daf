"""Decoders: a score for every pixel, whatever maps they get."""

from __future__ import annotations

import pytest
import torch

from manyview.transfer.decoders import DECODERS, UNet

SHAPES = [(16, 2, 2), (8, 4, 4), (4, 8, 8)]


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[:1], [(4, 16, 16)]])
def test_every_pixel_gets_a_score_for_every_class(name: str, shapes: list[tuple[int, int, int]]) -> None:
    decoder = DECODERS[name](shapes, size=16, classes=5)
    assert decoder([torch.randn(2, *shape) for shape in shapes]).shape == (2, 5, 16, 16)


def test_a_side_that_is_no_power_of_two_is_reached_as_well() -> None:
    decoder = UNet([(4, 7, 7)], 50, 3)
    assert decoder([torch.randn(1, 4, 7, 7)]).shape == (1, 3, 50, 50)


@pytest.mark.parametrize("name", DECODERS)
def test_every_map_matters(name: str) -> None:
    decoder = DECODERS[name](SHAPES, size=16, classes=5).eval()
    maps = [torch.randn(1, *shape, requires_grad=True) for shape in SHAPES]
    decoder(maps).sum().backward()
    assert all(each.grad is not None and bool(each.grad.abs().sum() > 0) for each in maps)


def test_the_linear_decoder_is_a_linear_function_of_each_place() -> None:
    decoder = DECODERS["linear"]([(4, 8, 8)], size=8, classes=3).eval()
    maps = torch.randn(1, 4, 8, 8)
    moved = maps.roll(2, 3)
    assert torch.allclose(decoder([maps]).roll(2, 3), decoder([moved]), atol=1e-6)
