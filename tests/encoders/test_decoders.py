from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders.decoders import upsampling


@pytest.mark.parametrize("side", [1, 3, 4, 7, 12, 16, 30, 32])
@pytest.mark.parametrize("shape", [(10,), (10, 1, 1), (10, 2, 2), (10, 7, 7), (10, 40, 20)])
def test_what_the_last_layer_gives_becomes_a_picture_of_any_side(shape: tuple[int, ...], side: int) -> None:
    decoder = upsampling(shape, 3, side=side, width=6)
    assert decoder(torch.randn(2, *shape)).shape == (2, 3, side, side)


@pytest.mark.parametrize(("shape", "first"), [((10,), 10 * 96 + 96), ((10, 4, 4), 10 * 6 + 6)])
def test_it_has_the_parameters_that_its_docstring_says(shape: tuple[int, ...], first: int) -> None:
    """Features or a map to `width` maps of 4 x 4, 3x3 convolutions at 8 and 16, and the one that makes the channels."""
    decoder = upsampling(shape, 3, side=16, width=6)
    expected = first + 2 * (6 * 6 * 9 + 6) + (6 * 3 * 9 + 3)
    assert sum(each.numel() for each in decoder.parameters()) == expected
    assert not any(isinstance(each, nn.BatchNorm2d) for each in decoder.modules())


def test_a_picture_does_not_depend_on_its_batch() -> None:
    decoder, x = upsampling((10,), 1, side=8, width=6), torch.randn(4, 10)
    torch.testing.assert_close(decoder(x)[:1], decoder(x[:1]))


def test_places_stay_where_they_are() -> None:
    """A map that differs in one corner gives a picture that differs near that corner alone."""
    torch.manual_seed(0)
    decoder, x = upsampling((5, 8, 8), 1, side=16, width=6), torch.randn(1, 5, 8, 8)
    other = x.clone()
    other[:, :, 0, 0] += 1
    changed = (decoder(x) - decoder(other)).abs()[0, 0] > 1e-6
    assert changed[:2, :2].any()
    assert not changed[6:, :].any()
    assert not changed[:, 6:].any()
