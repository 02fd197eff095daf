"""Colour spaces beside scikit-image's functions in float64."""

from __future__ import annotations

import pytest
import skimage.color
import torch
from torch import Tensor

from manyview.views import SPACES
from manyview.views.colour_spaces import hed, hsv, lab, ycbcr, ydbdr


def colours() -> Tensor:
    """Bytes, dark bytes, where formulas have another branch, any numbers, greys, and the corners of the cube."""
    generator = torch.Generator().manual_seed(0)
    several = [
        torch.randint(256, (3, 1, 60, 80), generator=generator) / 255,
        torch.randint(24, (3, 1, 60, 80), generator=generator) / 255,
        torch.rand(3, 1, 60, 80, generator=generator) ** 3,
        torch.linspace(0, 1, 4800).view(1, 1, 60, 80).expand(3, 1, 60, 80),
        torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).T.repeat(1, 600).view(3, 1, 60, 80),
    ]
    return torch.cat(several, 1)


def oracle(name: str, planes: Tensor) -> Tensor:
    convert = getattr(skimage.color, f"rgb2{name}")
    return torch.from_numpy(convert(planes.double().permute(1, 2, 3, 0).numpy())).permute(3, 0, 1, 2)


@pytest.mark.parametrize("name", SPACES)
def test_every_pixel_is_that_of_scikit_image(name: str) -> None:
    planes = colours()
    before = planes.clone()
    found = SPACES[name].convert(planes)
    assert torch.equal(planes, before)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), oracle(name, planes), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", SPACES)
def test_a_pixel_does_not_depend_on_who_else_is_there_or_how_they_lie(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planes, convert = colours(), SPACES[name].convert
    found = convert(planes)
    assert torch.equal(convert(planes[:, 2:3]), found[:, 2:3])
    assert torch.equal(convert(planes.transpose(0, 1).contiguous().transpose(0, 1)), found)
    monkeypatch.setattr("manyview.views.colour_spaces.PART_PIXELS", 2 * 60 * 80)
    assert torch.equal(convert(planes), found)
    assert convert(planes[:, :0]).shape == (3, 0, 60, 80)
    odd = planes[:, :, :11, :7].contiguous()
    assert torch.equal(convert(odd)[:, 2:4], convert(odd[:, 2:4].contiguous()))


def test_known_colours_in_lab() -> None:
    """As the tables of sRGB's primaries have them."""
    for colour, wanted in {
        (1.0, 1.0, 1.0): (100.0, 0.0, 0.0),
        (1.0, 0.0, 0.0): (53.24, 80.09, 67.20),
        (0.0, 1.0, 0.0): (87.74, -86.18, 83.18),
        (0.0, 0.0, 1.0): (32.30, 79.19, -107.86),
    }.items():
        found = lab(torch.tensor(colour).view(3, 1, 1, 1)).flatten()
        torch.testing.assert_close(found, torch.tensor(wanted), atol=0.02, rtol=0)


def test_grey_has_no_colour_in_any_space() -> None:
    grey = torch.linspace(0, 1, 11).expand(3, 1, 1, 11)
    assert lab(grey)[1:].abs().max() < 0.02
    assert ydbdr(grey)[1:].abs().max() < 1e-6
    assert ycbcr(grey)[1:].sub(128).abs().max() < 1e-4
    assert hsv(grey)[:2].abs().max() == 0
    assert hed(grey)[1].abs().max() == 0
    torch.testing.assert_close(ydbdr(grey)[0], grey[0])


def normalised(name: str, planes: Tensor) -> Tensor:
    convert, mean, std = SPACES[name]
    return (convert(planes) - torch.tensor(mean).view(3, 1, 1, 1)) / torch.tensor(std).view(3, 1, 1, 1)


@pytest.mark.parametrize("name", ["lab", "ydbdr", "ycbcr", "hsv"])
def test_the_statistics_bring_colours_to_about_one(name: str) -> None:
    cube = torch.cartesian_prod(*[torch.linspace(0, 1, 9)] * 3).T.reshape(3, 1, 27, 27)
    found = normalised(name, cube)
    assert found.abs().max() < 1.1
    assert (found.amax((1, 2, 3)) - found.amin((1, 2, 3))).min() > 1.8


def test_the_two_luma_channels_are_one_once_they_are_normalised() -> None:
    planes = colours()
    torch.testing.assert_close(normalised("ycbcr", planes)[0], normalised("ydbdr", planes)[0], atol=1e-3, rtol=0)
