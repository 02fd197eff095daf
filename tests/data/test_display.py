"""What a person is shown of modalities that are no pictures."""

from __future__ import annotations

import pytest
import torch

from manyview.data.display import displayed


def test_pictures_stay_and_one_channel_becomes_grey() -> None:
    picture = torch.randint(0, 256, (3, 4, 5), dtype=torch.uint8)
    assert torch.equal(displayed(picture), picture)
    assert torch.equal(displayed(picture[:1]), picture[:1].repeat(3, 1, 1))


def test_depth_in_millimetres_fills_the_range_whatever_one_bad_pixel_says() -> None:
    depth = torch.linspace(500, 4500, 10_000).view(1, 100, 100)
    depth[0, 0, 0], depth[0, 0, 1], depth[0, 0, 2] = 65535, torch.nan, torch.inf
    shown = displayed(depth)
    assert shown.shape == (3, 100, 100)
    assert shown.dtype == torch.uint8
    assert (int(shown[0, 0, 1]), int(shown[0, 0, 2]), int(shown[0, 0, 0])) == (0, 0, 255)
    assert abs(int(shown[0, 50, 0]) - 128) < 3
    assert bool((shown[0].flatten()[3:].diff().int() >= 0).all())


@pytest.mark.parametrize(("channels", "used"), [(2, 1), (4, 3), (13, 3)])
def test_of_other_numbers_of_channels_the_first_are_shown(channels: int, used: int) -> None:
    raw = torch.rand(channels, 8, 8)
    assert torch.equal(displayed(raw), displayed(raw[:used]))


@pytest.mark.parametrize("value", [7.0, torch.nan])
def test_what_is_flat_or_empty_is_a_picture_too(value: float) -> None:
    assert displayed(torch.full((1, 4, 4), value)).unique().tolist() == [0]
