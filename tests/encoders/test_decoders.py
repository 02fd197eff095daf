from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders.decoders import upsampling


@pytest.mark.parametrize("side", [1, 3, 4, 7, 12, 16, 30, 32])
def test_features_become_pictures_of_any_side(side: int) -> None:
    decoder = upsampling(10, 3, side=side, width=6)
    assert decoder(torch.randn(2, 10)).shape == (2, 3, side, side)


def test_it_has_the_parameters_that_its_docstring_says() -> None:
    """dim to width maps of 4 x 4, 3x3 convolutions at 8 and 16, and the one that makes the channels."""
    decoder = upsampling(10, 3, side=16, width=6)
    expected = (10 * 96 + 96) + 2 * (6 * 6 * 9 + 6) + (6 * 3 * 9 + 3)
    assert sum(each.numel() for each in decoder.parameters()) == expected
    assert not any(isinstance(each, nn.BatchNorm2d) for each in decoder.modules())


def test_a_picture_does_not_depend_on_its_batch() -> None:
    decoder, x = upsampling(10, 1, side=8, width=6), torch.randn(4, 10)
    torch.testing.assert_close(decoder(x)[:1], decoder(x[:1]))
