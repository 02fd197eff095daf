"""Decodes JPEG files by libjpeg-turbo, at their full size or at 1/2, 1/4 or 1/8 of it.

simplejpeg carries libjpeg-turbo in its wheels, decodes straight into one array and, unlike OpenCV, refuses files that
are cut short. The pixels are Pillow's.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from manyview.data.dataset import Shrink, Unreadable

Array = np.ndarray[Any, np.dtype[Any]]

START = b"\xff\xd8\xff"
ORIENTATION = 0x0112
_GREY, _COLOURS = "Gray", ("YCbCr", "RGB")
_TURNED = (5, 6, 7, 8)
_UPRIGHT: dict[int, Callable[[Array], Array]] = {  # by EXIF orientation
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: x[::-1].swapaxes(0, 1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: x.swapaxes(0, 1)[::-1],
}


def decode_jpeg(
    data: bytes, check: Callable[[int, int], None], *, grey: bool = False, shrink: Shrink | None = None
) -> tuple[Array, tuple[int, int]] | None:
    """Decodes into RGB (H, W, 3), upright; gives it and the height and width of the whole picture.

    check   gets height and width before anything is decoded, and raises if they are too much
    grey    keeps one channel, (H, W, 1), where the file has no more
    shrink  how many times smaller the picture may be

    None stands for what Pillow should look at: other colours, such as CMYK, and errors, which it may pass over.
    """
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(data)
        check(height, width)
        orientation = _orientation(data)
        size = (width, height) if orientation in _TURNED else (height, width)
        factor = 1 if shrink is None else shrink(*size)
        if space != _GREY and space not in _COLOURS:
            return None
        least = {} if factor == 1 else {"min_height": -(-height // factor), "min_width": -(-width // factor)}
        pixels = simplejpeg.decode_jpeg(data, "GRAY" if grey and space == _GREY else "RGB", **least)
    except Unreadable:
        raise
    except ValueError:
        return None
    return np.ascontiguousarray(_UPRIGHT[orientation](pixels)) if orientation in _UPRIGHT else pixels, size


def _orientation(data: bytes) -> int:
    """What EXIF, or else XMP, says; Pillow reads it, where there is anything to read."""
    header = data[: _header_length(data)]
    if b"Exif\0\0" not in header and b"tiff:Orientation" not in header:
        return 1
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        return int(image.getexif().get(ORIENTATION, 1))


def _header_length(data: bytes) -> int:
    """Where the pixels begin: after the segments, each of which says how long it is."""
    place = 2
    while data[place : place + 1] == b"\xff" and data[place + 1 : place + 2] != b"\xda":
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return place
