from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from manyview.data.dataset import Unreadable
from manyview.data.folder import Folder
from manyview.data.image import decode, decode_own, decode_smaller
from manyview.data.jpeg import ORIENTATION, Array, decode_jpeg


def photo(height: int = 61, width: int = 90) -> Image.Image:
    """A picture with structure at all scales."""
    rng = np.random.default_rng(0)
    layers = [
        Image.fromarray(rng.integers(0, 256, (4 << k, 6 << k, 3), dtype=np.uint8)).resize((width, height), 3)
        for k in range(4)
    ]
    return Image.fromarray(np.mean([np.asarray(layer) for layer in layers], 0).astype(np.uint8))


def saved(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def decoded(data: bytes, **options: Any) -> tuple[Array, tuple[int, int]]:
    found = decode_jpeg(data, lambda height, width: None, **options)
    assert found is not None
    return found


def pillows(data: bytes) -> Array:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 40}])
def test_pixels_are_pillows(options: dict[str, Any]) -> None:
    data = saved(photo(), **options)
    pixels, size = decoded(data)
    assert size == (61, 90)
    assert np.array_equal(pixels, pillows(data))


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_smaller_picture_is_the_one_that_pillow_drafts(factor: int) -> None:
    data = saved(photo())
    image = Image.open(io.BytesIO(data))
    image.draft("RGB", (90 // factor, 61 // factor))
    pixels, size = decoded(data, shrink=lambda height, width: factor)
    assert size == (61, 90)
    assert pixels.shape == (-(-61 // factor), -(-90 // factor), 3)
    assert np.array_equal(pixels, np.asarray(image))


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("factor", [1, 2])
def test_pictures_are_upright_at_every_scale(orientation: int, factor: int) -> None:
    image, exif = photo(64, 96), Image.Exif()
    exif[ORIENTATION] = orientation
    asked = []

    def shrink(height: int, width: int) -> int:
        asked.append((height, width))
        return factor

    data = saved(image, exif=exif)
    pixels, size = decoded(data, shrink=shrink)
    upright = pillows(data)
    assert asked == [size] == [upright.shape[:2]]
    if factor == 1:
        assert np.array_equal(pixels, upright)
    else:
        half = np.asarray(Image.fromarray(upright).resize(pixels.shape[1::-1], Image.Resampling.BOX))
        assert abs(half.astype(int) - pixels).mean() < 3
        assert orientation in (0, 1, 9) or abs(half[::-1, ::-1].astype(int) - pixels).mean() > 10


def test_grey_stays_one_channel_where_it_may() -> None:
    data = saved(photo().convert("L"))
    assert decoded(data)[0].shape == (61, 90, 3)
    grey = decoded(data, grey=True)[0]
    assert np.array_equal(grey[..., 0], pillows(data))
    assert decode_own(data).shape == (1, 61, 90)
    assert decode(data).shape == (3, 61, 90)


def test_the_size_is_refused_before_anything_is_decoded() -> None:
    whole = saved(photo())
    for data in (whole, whole[: whole.index(b"\xff\xda") + 20]):
        with pytest.raises(Unreadable, match="too large: 90 x 61 pixels, more than max_pixels=5,000"):
            decode(data, max_pixels=5000)


def test_pillow_judges_what_is_damaged_or_has_other_colours() -> None:
    data = saved(photo())
    for short in (data[: len(data) // 2], data[:30]):
        assert decode_jpeg(short, lambda height, width: None) is None
        with pytest.raises(Unreadable):
            decode(short)
    assert decode_jpeg(saved(photo().convert("CMYK")), lambda height, width: None) is None
    cmyk, size = decode_smaller(saved(photo().convert("CMYK")), shrink=lambda height, width: 2)
    assert (tuple(cmyk.shape), size) == ((3, 61, 90), (61, 90))
    end = data.rindex(b"\xff\xd9")
    odd = data[:end] + b"\x12\x34" + data[end:]  # a few bytes too many, which libjpeg warns about
    assert np.array_equal(decode(odd).permute(1, 2, 0).numpy(), pillows(data))


def test_a_folder_decodes_jpeg_smaller_and_other_files_whole(tmp_path: Path) -> None:
    photo().save(tmp_path / "a.jpg")
    photo().save(tmp_path / "b.png")
    found = [Folder(tmp_path).smaller(index, lambda height, width: 2) for index in range(2)]
    assert [tuple(sample.modalities["image"].shape) for sample in found] == [(3, 31, 45), (3, 61, 90)]
    assert [sample.size for sample in found] == [(61, 90)] * 2
