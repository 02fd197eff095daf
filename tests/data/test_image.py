"""Decoding: every kind of file becomes the same kind of tensor, or says why not."""

from __future__ import annotations

import io
import os
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.data import image as image_module
from manyview.data.dataset import Unreadable
from manyview.data.image import decode, decode_array, decode_own, own_of, read_header
from tests.data.awful import BROKEN, GOOD, make_awful, picture, png16


@pytest.fixture(scope="module")
def awful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_awful(tmp_path_factory.mktemp("awful"))


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("name", GOOD)
def test_every_kind_becomes_uint8_rgb(awful: Path, name: str) -> None:
    image = decode(awful / name)
    assert image.dtype == torch.uint8
    assert tuple(image.shape) == GOOD[name]


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_says_why_in_one_line(awful: Path, name: str) -> None:
    with pytest.raises(Unreadable, match=BROKEN[name]) as caught:
        decode(awful / name)
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(awful) not in str(caught.value)


@pytest.mark.parametrize("name", ["empty.png", "text.png", "bomb.png"])
def test_a_header_that_is_broken_says_so_too(awful: Path, name: str) -> None:
    with pytest.raises(Unreadable, match=BROKEN[name]):
        read_header(awful / name)


def test_pixels_arrive_unchanged_and_channels_last() -> None:
    original = picture(7, 6)
    image = decode(encoded(original))
    assert torch.equal(image.permute(1, 2, 0), torch.from_numpy(np.array(original)))
    assert image.permute(1, 2, 0).is_contiguous()


def test_path_and_bytes_give_the_same(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    assert torch.equal(decode(tmp_path / "a.png"), decode((tmp_path / "a.png").read_bytes()))


def test_a_16_bit_grey_is_scaled_by_its_full_range() -> None:
    levels = np.array([[0, 257, 0x8000, 65535]], np.uint16)
    assert decode(png16(levels, 0))[0].tolist() == [[0, 1, 128, 255]]


def test_16_bit_colours_keep_their_upper_byte(awful: Path) -> None:
    assert decode(awful / "rgb16.png").unique().tolist() == [0x80]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),  # floats in [0, 1]
        ([0.0, 100.0, 255.0], [0, 100, 255]),  # already 8 bits
        ([0.0, 257.0, 65535.0], [0, 1, 255]),  # 16 bits
        ([-1.0, 0.0, 1.0], [0, 128, 255]),  # stretched
        ([float("nan"), 0.0, 1.0], [0, 0, 255]),
        ([-5.0, -5.0, -5.0], [0, 0, 0]),
    ],
)
def test_floats_find_their_range(values: list[float], expected: list[int]) -> None:
    image = decode(encoded(Image.fromarray(np.array([values], np.float32)), "TIFF"))
    assert image[0, 0].tolist() == expected


def test_whole_numbers_of_32_bits_above_16_bits_are_stretched() -> None:
    image = decode(encoded(Image.fromarray(np.array([[100_000, 200_000]], np.int32)), "TIFF"))
    assert image[0, 0].tolist() == [0, 255]


def test_transparency_is_laid_over_white(awful: Path) -> None:
    assert decode(awful / "palette.png")[:, 0, 0].tolist() == [255, 255, 255]
    assert decode(awful / "palette.png")[:, 1, 1].tolist() == [0, 0, 255]
    assert decode(awful / "grey-alpha.png").unique().tolist() == [255]
    assert decode(awful / "rgba.png")[:, 0, 0].tolist() == [255, 127, 127]


def test_of_an_animation_the_first_frame_counts(awful: Path) -> None:
    assert decode(awful / "animated.gif")[:, 0, 0].tolist() == [255, 0, 0]
    assert decode(awful / "animated.webp")[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("name", ["rotated.jpg", "rotated.tif"])
def test_exif_orientation_is_applied_once(awful: Path, name: str) -> None:
    image = decode(awful / name).int()
    assert (image[0, :6] > 200).all()  # the red half is up
    assert (image[2, 10:] > 200).all()
    assert (image[0, 10:] < 60).all()


def test_cmyk_becomes_the_colour_that_it_prints(awful: Path) -> None:
    red, green, blue = decode(awful / "cmyk.jpg")[:, 4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


def test_a_truncated_file_is_not_filled_with_grey(awful: Path) -> None:
    with pytest.raises(Unreadable, match="truncated"):
        decode((awful / "truncated.jpg").read_bytes())


def test_a_vanished_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="gone"):
        decode(tmp_path / "was-here.png")


def test_a_format_that_starts_other_programs_is_refused() -> None:
    with pytest.raises(Unreadable, match="not an image"):
        decode(encoded(picture(), "EPS"))


def test_header_tells_format_mode_and_upright_size(awful: Path) -> None:
    assert read_header(awful / "rotated.jpg") == ("JPEG", "RGB", 8, 16)
    assert read_header(awful / "grey16.png").mode == "16-bit grey"
    assert read_header(awful / "rgb16.png").mode == "16-bit RGB"
    assert read_header(awful / "palette.png").mode == "palette+alpha"
    assert read_header(awful / "cmyk.jpg").mode == "CMYK"
    assert read_header(awful / "grey-alpha.png").mode == "grey+alpha"
    assert read_header(awful / "wrong-ending.png").format == "JPEG"


def test_own_unit_keeps_one_channel_and_depth() -> None:
    depth = np.array([[0, 1500, 65535]], np.uint16)
    assert decode_own(encoded(Image.fromarray(depth))).tolist() == [[[0.0, 1500.0, 65535.0]]]
    assert decode_own(encoded(Image.fromarray(np.array([[-2.5]], np.float32)), "TIFF")).tolist() == [[[-2.5]]]
    grey = decode_own(encoded(Image.new("L", (3, 2), 7)))
    assert (grey.dtype, tuple(grey.shape), int(grey[0, 0, 0])) == (torch.uint8, (1, 2, 3), 7)
    assert decode_own(encoded(Image.new("1", (3, 2), 1))).unique().tolist() == [255]
    assert tuple(decode_own(encoded(picture())).shape) == (3, 4, 5)


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((4, 5), None), ((4, 5, 2), 2), ((2, 4, 5), 0), ((3, 3, 3), 0), ((9, 9, 6), 2), ((1, 1, 1), 0)],
)
def test_arrays_come_with_channels_first(tmp_path: Path, shape: tuple[int, ...], channels: int | None) -> None:
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    np.save(tmp_path / "a.npy", values)
    array = decode_array(tmp_path / "a.npy")
    expected = values[None] if channels is None else np.moveaxis(values, channels, 0)
    assert array.dtype == torch.float32
    assert array.tolist() == expected.tolist()


def test_arrays_keep_bytes_and_spread_booleans(tmp_path: Path) -> None:
    np.save(tmp_path / "bytes.npy", np.full((2, 3), 9, np.uint8))
    np.save(tmp_path / "truth.npy", np.eye(2, dtype=bool))
    assert decode_array(tmp_path / "bytes.npy").dtype == torch.uint8
    assert decode_array(tmp_path / "truth.npy").tolist() == [[[255, 0], [0, 255]]]


def test_an_array_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[{"a": 1}]], dtype=object), allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    for name in ("a.npy", "b.npy"):
        with pytest.raises(Unreadable):
            decode_array(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_an_array_of_another_shape_or_cut_short_is_unreadable(tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(Unreadable, match=re.escape("float64 (3,)")):
        decode_array(tmp_path / "flat.npy")
    np.save(tmp_path / "cut.npy", np.zeros((100, 100)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:500])
    with pytest.raises(Unreadable):
        decode_array(tmp_path / "cut.npy")
    with pytest.raises(Unreadable, match="gone"):
        decode_array(tmp_path / "none.npy")


@pytest.mark.parametrize(
    ("mode", "channels", "dtype"),
    [("RGB", 3, torch.uint8), ("L", 1, torch.uint8), ("P", 3, torch.uint8), ("I;16", 1, torch.float32)],
)
def test_an_open_image_is_taken_as_its_file_would_be(
    tmp_path: Path, mode: str, channels: int, dtype: torch.dtype
) -> None:
    image = Image.new(mode, (5, 4))
    image.save(tmp_path / "a.png")
    assert (tuple(own_of(image).shape), own_of(image).dtype) == ((channels, 4, 5), dtype)
    assert torch.equal(own_of(image), decode_own(tmp_path / "a.png"))


def fifo(path: Path) -> Path:
    os.mkfifo(f"{path}.fifo")
    path.symlink_to(f"{path}.fifo")
    return path


def test_what_is_no_regular_file_is_unreadable_and_never_opened(tmp_path: Path) -> None:
    device = tmp_path / "endless.png"
    device.symlink_to("/dev/zero")
    for path in (fifo(tmp_path / "pipe.png"), device):
        for read in (decode, decode_own, read_header):
            with pytest.raises(Unreadable, match="not a regular file"):
                read(path)
    with pytest.raises(Unreadable, match="not a regular file"):
        decode_array(fifo(tmp_path / "pipe.npy"))


def test_a_picture_with_too_many_pixels_is_unreadable_by_its_header(tmp_path: Path) -> None:
    bomb = encoded(Image.new("1", (9000, 9000)))
    assert len(bomb) < 30_000
    for read in (decode, decode_own, read_header):
        with pytest.raises(Unreadable, match=r"too large: 9000 x 9000 pixels, more than max_pixels=67,108,864"):
            read(bomb)
    assert decode(encoded(picture()), 20).shape == (3, 4, 5)
    with pytest.raises(Unreadable, match="too large: 5 x 4 pixels, more than max_pixels=19"):
        decode(encoded(picture()), 19)
    with (tmp_path / "bomb.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (20_000, 20_000)})
        file.truncate(file.tell() + 4 * 20_000**2)  # all of it is a hole
    with pytest.raises(Unreadable, match=r"too large: 20000 x 20000"):
        decode_array(tmp_path / "bomb.npy")


def test_deep_pictures_are_scaled_piece_by_piece_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(0, 1e4, (31, 17)).astype(np.float32)
    values[3, 4], values[5, 6] = np.nan, np.inf
    stored = encoded(Image.fromarray(values), "TIFF")
    whole = decode(stored)
    monkeypatch.setattr(image_module, "_PIECE", 7)
    assert torch.equal(decode(stored), whole)
