"""The last step of a view is (x - mean) / std, of floats and of bytes."""

from __future__ import annotations

import pytest
import torch

from manyview.views.normalise import is_plain, normalise, to_normalise
from manyview.views.view import IMAGENET, PICTURE, View

MEAN, STD = (torch.tensor(each).view(3, 1, 1, 1) for each in IMAGENET)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_picture_is_normalised_whether_it_comes_in_bytes_or_in_floats(dtype: torch.dtype) -> None:
    pixels = torch.randint(256, (3, 4, 5, 6), dtype=torch.uint8)
    planes = pixels if dtype == torch.uint8 else pixels / 255
    ((name, own, scale, shift),) = to_normalise(planes, {"image": View("image")}, PICTURE)
    made = torch.empty(4, 3, 5, 6)
    normalise(own, scale, shift, made.transpose(0, 1))
    assert name == "image"
    torch.testing.assert_close(made.transpose(0, 1), (pixels / 255 - MEAN) / STD)


def test_a_view_of_some_channels_or_beside_another_is_not_plain() -> None:
    assert is_plain({"image": View("image")})
    assert not is_plain({"red": View("image", channels=(0,))})
    assert not is_plain({"image": View("image"), "again": View("image")})
