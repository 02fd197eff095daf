from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.views import PICTURE, SPACES, VIEWS, Modality, View
from manyview.views.view import lab, view_named, ydbdr


def test_derived_views_are_of_the_reference_modality_and_other_names_are_modalities() -> None:
    assert view_named("L", "rgb") == View("rgb", channels=(0,), space="lab")
    assert view_named("DbDr", "image") == VIEWS["DbDr"]
    assert view_named("depth", "rgb") == View("depth")


def test_statistics_are_the_views_own_or_those_of_its_space_or_modality_for_the_kept_channels() -> None:
    assert VIEWS["ab"].statistics(PICTURE) == ((6.025, -6.6895), (92.208, 101.1675))
    assert VIEWS["Y"].statistics(PICTURE) == ((0.457,), (0.5,))
    assert View("image", channels=(2, 0)).statistics(PICTURE) == ((0.406, 0.485), (0.225, 0.229))
    assert View("flow", channels=(1,)).statistics(Modality((3.0,), (2.0,))) == ((3.0,), (2.0,))
    assert View("flow", mean=(1.0,), std=(4.0,)).statistics(Modality()) == ((1.0,), (4.0,))


def test_the_kept_channels_are_a_copy() -> None:
    planes = torch.arange(12.0).view(3, 1, 2, 2)
    for view, wanted in ((View(channels=(2, 0)), planes[[2, 0]]), (View(), planes)):
        taken = view.taken(planes)
        assert torch.equal(taken, wanted)
        taken.zero_()
    assert planes.sum() == 66


def test_a_mistake_is_named() -> None:
    with pytest.raises(ValueError, match="space: there is no colour space 'hsv'; give lab, ydbdr"):
        View(space="hsv")
    with pytest.raises(ValueError, match="channels: a view has at least one"):
        View(channels=())
    with pytest.raises(ValueError, match=r"mean: .* as many numbers each"):
        View(mean=(0.5,))
    with pytest.raises(ValueError, match="space: lab is made of three channels, 'depth' has 1"):
        View("depth", space="lab").width(1)
    with pytest.raises(ValueError, match=r"channels: \(3,\): 'image' has channels 0 to 2"):
        View(channels=(3,)).width(3)
    with pytest.raises(ValueError, match="mean: 2 numbers for the 1 channels of a view of 'image'"):
        View(channels=(0,), mean=(0.0, 1.0), std=(1.0, 1.0)).width(3)


Pixel = tuple[float, float, float]


def lab_of(r: float, g: float, b: float) -> Pixel:
    """CIE 15 and IEC 61966-2-1, one pixel: sRGB to linear light, to XYZ, to L*a*b* relative to D65."""
    r, g, b = (((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in (r, g, b))
    x = (0.412453 * r + 0.357580 * g + 0.180423 * b) / 0.95047
    y = 0.212671 * r + 0.715160 * g + 0.072169 * b
    z = (0.019334 * r + 0.119193 * g + 0.950227 * b) / 1.08883
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ydbdr_of(r: float, g: float, b: float) -> Pixel:
    """SECAM, one pixel: Y = .299 R + .587 G + .114 B, Db = 1.505 (B - Y), Dr = -1.902 (R - Y), to three digits."""
    return (
        0.299 * r + 0.587 * g + 0.114 * b,
        -0.450 * r - 0.883 * g + 1.333 * b,
        -1.333 * r + 1.116 * g + 0.217 * b,
    )


ORACLES = {"lab": lab_of, "ydbdr": ydbdr_of}


def planes() -> Tensor:
    """Random pixels, many of them dark, where the formulas have another branch, and the corners of the cube."""
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(3, 4, 5, 6, generator=generator) ** 3
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).T.reshape(3, 1, 2, 4)
    random[:, :1, :2, :4] = corners
    return random


@pytest.mark.parametrize("name", SPACES)
def test_every_pixel_is_that_of_the_formula(name: str) -> None:
    pixels = planes()
    before = pixels.clone()
    found = SPACES[name].convert(pixels)
    assert found.shape == pixels.shape
    assert torch.equal(pixels, before)
    for n, row, column in torch.cartesian_prod(torch.arange(4), torch.arange(5), torch.arange(6)).tolist():
        wanted = torch.tensor(ORACLES[name](*pixels[:, n, row, column].tolist()))
        torch.testing.assert_close(found[:, n, row, column], wanted, atol=2e-4, rtol=1e-5)


def test_known_colours_in_lab() -> None:
    """As scikit-image's rgb2lab and the tables of sRGB's primaries have them."""
    for colour, wanted in {
        (1.0, 1.0, 1.0): (100.0, 0.0, 0.0),
        (1.0, 0.0, 0.0): (53.24, 80.09, 67.20),
        (0.0, 1.0, 0.0): (87.74, -86.18, 83.18),
        (0.0, 0.0, 1.0): (32.30, 79.19, -107.86),
    }.items():
        found = lab(torch.tensor(colour).view(3, 1, 1, 1)).flatten()
        torch.testing.assert_close(found, torch.tensor(wanted), atol=0.02, rtol=0)


def test_grey_has_no_colour_in_either_space() -> None:
    grey = torch.linspace(0, 1, 11).expand(3, 1, 1, 11)
    assert lab(grey)[1:].abs().max() < 0.02
    assert ydbdr(grey)[1:].abs().max() < 1e-6
    torch.testing.assert_close(ydbdr(grey)[0], grey[0])


@pytest.mark.parametrize("name", SPACES)
def test_the_statistics_of_the_field_bring_colours_to_about_one(name: str) -> None:
    cube = torch.cartesian_prod(*[torch.linspace(0, 1, 9)] * 3).T.reshape(3, 1, 27, 27)
    convert, mean, std = SPACES[name]
    normalised = (convert(cube) - torch.tensor(mean).view(3, 1, 1, 1)) / torch.tensor(std).view(3, 1, 1, 1)
    assert normalised.abs().max() < 1.1
    assert (normalised.amax((1, 2, 3)) - normalised.amin((1, 2, 3))).min() > 1.8
