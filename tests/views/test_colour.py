"""Each colour operation is torchvision's, picture by picture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from torch import Tensor

from manyview.views import colour
from manyview.views.colour import blur_, gaussian

N = 7


@pytest.fixture
def images() -> Tensor:
    """(N, 3, 11, 13): noise, and pictures where hue is delicate: grey, black, white, pure and equal channels."""
    images = torch.rand(N, 3, 11, 13, generator=torch.Generator().manual_seed(0))
    images[1] = images[1, :1]
    images[2, :, :4], images[2, :, 4:8] = 0, 1
    images[3, 1] = images[3, 2]
    images[4] = (images[4] > 0.5).float()
    return images


def planes(images: Tensor) -> Tensor:
    return images.transpose(0, 1).contiguous()


OPERATIONS: list[tuple[str, Callable[[Tensor, Tensor], None], Callable[[Tensor, float], Tensor], float, float]] = [
    ("brightness", colour.brightness_, tv.adjust_brightness, 0.2, 1.8),
    ("contrast", colour.contrast_, tv.adjust_contrast, 0.2, 1.8),
    ("saturation", colour.saturation_, tv.adjust_saturation, 0.2, 1.8),
    ("hue", colour.hue_, tv.adjust_hue, -0.5, 0.5),
]


@pytest.mark.parametrize(("name", "ours", "theirs", "low", "high"), OPERATIONS, ids=[row[0] for row in OPERATIONS])
def test_an_operation_with_a_factor_per_picture_is_torchvisions(
    name: str,
    ours: Callable[[Tensor, Tensor], None],
    theirs: Callable[[Tensor, float], Tensor],
    low: float,
    high: float,
    images: Tensor,
) -> None:
    factors = torch.linspace(low, high, N)
    out = planes(images)
    ours(out, factors)
    for row, factor in enumerate(factors.tolist()):
        torch.testing.assert_close(out[:, row], theirs(images[row], factor), atol=1e-5, rtol=0)


def test_a_whole_turn_of_hue_changes_nothing(images: Tensor) -> None:
    out = planes(images)
    colour.hue_(out, torch.ones(N))
    torch.testing.assert_close(out, planes(images), atol=1e-5, rtol=0)


def test_every_order_of_the_jitter_is_torchvisions(images: Tensor) -> None:
    image = images[:1].expand(24, -1, -1, -1)
    factors = np.tile(np.array([0.7, 1.4, 0.6, 0.2], np.float32), (24, 1))
    out, rows = colour.jitter(planes(image), factors, np.arange(24), (0.4, 0.4, 0.4, 0.2))
    out = out[:, rows.argsort()]
    for row, turn in enumerate(permutations(range(4))):
        expected = images[0]
        for operation in turn:
            expected = OPERATIONS[operation][2](expected, factors[0, operation].item())
        torch.testing.assert_close(out[:, row], expected, atol=1e-5, rtol=0)


def test_order_minus_one_and_strength_zero_leave_pictures_alone(images: Tensor) -> None:
    factors, first = np.full((N, 4), 0.5, np.float32), np.zeros(N, np.int64)
    untouched, _ = colour.jitter(planes(images), factors, np.full(N, -1), (1, 1, 1, 0.5))
    assert torch.equal(untouched, planes(images))
    without_hue = colour.jitter(planes(images), factors, first, (1, 1, 1, 0))[0].clone()
    hue = colour.jitter(planes(images), factors, first, (1, 1, 1, 0.5))[0]
    assert not torch.equal(without_hue, hue)


def test_greyscale_and_solarise_are_torchvisions(images: Tensor) -> None:
    grey, solar = planes(images), planes(images)
    colour.grey_(grey)
    colour.solarise_(solar)
    torch.testing.assert_close(grey.transpose(0, 1), tv.rgb_to_grayscale(images, 3), atol=1e-6, rtol=0)
    torch.testing.assert_close(solar.transpose(0, 1), tv.solarize(images, 0.5), atol=1e-6, rtol=0)


@pytest.mark.parametrize("chosen", [[], [2, 5], list(range(N))])
def test_only_the_chosen_pictures_change(chosen: list[int], images: Tensor) -> None:
    out = planes(images)
    mask = np.isin(np.arange(N), chosen)
    factors = torch.linspace(0.1, 0.7, N)
    colour.some_(out, mask, lambda some, own: colour.brightness_(some, torch.from_numpy(own)), factors.numpy())
    kept = torch.from_numpy(mask)[:, None, None]
    expected = torch.where(kept, planes(images) * factors[:, None, None], planes(images))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("kernel", [3, 9, 23])
def test_the_blur_of_each_picture_is_torchvisions(kernel: int) -> None:
    sigma = np.array([0.1, 0.4, 1.0, 1.7, 2.0], np.float32)
    images = torch.rand(5, 3, 31, 40, generator=torch.Generator().manual_seed(1))
    planes = images.transpose(0, 1).contiguous()
    blur_(planes, sigma, kernel=kernel)
    for row, width in enumerate(sigma.tolist()):
        expected = tv.gaussian_blur(images[row], [kernel, kernel], [width, width])
        torch.testing.assert_close(planes[:, row], expected, atol=1e-5, rtol=0)


def test_what_is_left_out_beyond_five_sigmas_weighs_nothing() -> None:
    distance = np.arange(100)
    whole = np.exp(-0.5 * (distance / 2.0) ** 2)
    assert whole[11:].sum() / whole.sum() < 1e-6
    assert gaussian(np.array([2.0]), 40).shape == (1, 11)


def test_the_blur_of_a_picture_does_not_depend_on_its_neighbours() -> None:
    images = torch.rand(3, 4, 30, 30)
    together, alone = images.clone(), images[:, :1].clone()
    blur_(together, np.array([0.3, 0.5, 1.0, 2.0], np.float32), kernel=23)
    blur_(alone, np.array([0.3], np.float32), kernel=23)
    assert torch.equal(together[:, :1], alone)


def test_a_picture_smaller_than_the_kernel_is_still_blurred() -> None:
    planes = torch.rand(3, 1, 4, 4)
    before = planes.clone()
    blur_(planes, np.array([2.0], np.float32), kernel=23)
    assert planes.var() < before.var() / 2
    torch.testing.assert_close(planes.amax().clamp(max=before.amax()), planes.amax())
