from __future__ import annotations

import pytest
import torch
from PIL import Image

from manyview.data.visible import HOLE, Kind, to_rgb, visible


def pixel(picture: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    found = picture.getpixel((x, y))
    assert isinstance(found, tuple)
    return found


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
@pytest.mark.parametrize("kind", ["values", "directions", "mask"])
def test_any_modality_is_made_visible(channels: int, kind: Kind) -> None:
    whole = torch.full((channels, 4, 5), 7, dtype=torch.uint8)
    for picture in (whole, whole.float(), torch.full((channels, 4, 5), torch.nan)):
        made = to_rgb(picture, kind)
        assert (made.mode, made.size) == ("RGB", (5, 4))


def test_bytes_of_one_or_three_channels_are_shown_as_they_are() -> None:
    assert pixel(to_rgb(torch.full((1, 2, 2), 7, dtype=torch.uint8))) == (7, 7, 7)
    colour = torch.tensor([10, 20, 30], dtype=torch.uint8)[:, None, None].expand(3, 2, 2)
    assert pixel(to_rgb(colour)) == (10, 20, 30)


def test_numbers_are_stretched_and_one_hot_pixel_does_not_make_the_others_black() -> None:
    depth = torch.linspace(1000.0, 2000.0, 400).view(1, 20, 20)
    depth[0, 0, 0] = 65535.0
    made = to_rgb(depth)
    assert pixel(made, 0, 0) == (255, 255, 255)
    assert abs(pixel(made, 10, 10)[0] - 128) < 12
    assert min(made.tobytes()) == 0


def test_pictures_that_are_shown_together_share_their_range() -> None:
    cold, hot = torch.zeros(1, 4, 4), torch.ones(1, 4, 4)
    assert [pixel(each)[0] for each in visible([cold, hot])] == [0, 255]
    assert pixel(to_rgb(cold)) == pixel(to_rgb(hot))  # alone, neither has a range


def test_two_channels_are_red_and_green_and_yellow_and_blue() -> None:
    view = torch.zeros(2, 3, 3)
    view[0, 0, 0], view[0, 0, 1] = 1.0, -1.0
    view[1, 1, 0], view[1, 1, 1] = 1.0, -1.0
    made = to_rgb(view)
    red, green, yellow, blue = (pixel(made, x, y) for y in (0, 1) for x in (0, 1))
    assert red[0] > red[1]
    assert green[1] > green[0]
    assert min(yellow[:2]) > yellow[2]
    assert blue[2] > max(blue[:2])
    assert pixel(made, 2, 2) == (128, 128, 128)


def test_of_many_bands_three_are_shown_each_in_its_own_range() -> None:
    bands = torch.stack([scale * torch.arange(16.0).view(4, 4) for scale in (1, 100, 10_000, 5)])
    made = to_rgb(bands)
    assert pixel(made, 3, 3) == (255, 255, 255)
    assert pixel(made, 0, 0) == (0, 0, 0)


def test_a_surface_that_faces_us_is_blue_and_one_to_the_right_red() -> None:
    towards, right = torch.tensor([0.0, 0.0, -1.0]), torch.tensor([1.0, 0.0, 0.0])
    shown = [to_rgb(each[:, None, None].expand(3, 2, 2), "directions") for each in (towards, right)]
    assert [pixel(each) for each in shown] == [(128, 128, 255), (255, 128, 128)]


def test_numbers_of_a_mask_have_colours_of_their_own_and_the_background_is_dark() -> None:
    mask = torch.arange(8.0).view(1, 2, 4)
    made = to_rgb(mask, "mask")
    assert pixel(made) == (51, 51, 51)
    assert len({pixel(made, x, y) for x in range(4) for y in range(2)}) == 8


def test_where_a_sensor_saw_nothing_is_no_dark_pixel() -> None:
    hole = tuple(round(255 * each) for each in HOLE)
    depth = torch.linspace(1.0, 2.0, 16).view(1, 4, 4)
    depth[0, 3, 3] = torch.nan
    depth[0, 3, 2] = torch.inf
    assert pixel(to_rgb(depth), 3, 3) == pixel(to_rgb(depth), 2, 3) == hole
    depth[0, 3, 2:] = 0.0  # as sensors write it that do not know NaN
    assert pixel(to_rgb(depth), 3, 3) == (0, 0, 0)
    torn = to_rgb(depth, holes=depth == 0)
    assert pixel(torn, 3, 3) == pixel(torn, 2, 3) == hole
    assert pixel(torn, 0, 0) == (0, 0, 0)  # the range is that of the others
    assert pixel(torn, 1, 0) != (0, 0, 0)
    grey = torch.tensor([[[0, 9]]], dtype=torch.uint8)
    assert [pixel(to_rgb(grey, holes=grey == 0), x) for x in (0, 1)] == [hole, (9, 9, 9)]


def test_a_hole_in_one_channel_alone_leaves_the_others() -> None:
    bands = torch.linspace(0, 1, 48).view(3, 4, 4)
    bands[0, 3, 3] = torch.nan
    red, green, blue = pixel(to_rgb(bands), 3, 3)
    assert red == 0
    assert min(green, blue) > 200
