"""Decodes image files and arrays into tensors."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from manyview.core.text import one_line
from manyview.data.dataset import Unreadable

EXTENSIONS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")

# Named one by one, because Pillow's full list holds formats that start other programs.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM")

_MODES = {"L": "grey", "P": "palette", "1": "1-bit", "I": "32-bit grey", "F": "float grey"}
_ORIENTATION = 0x0112
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")  # one channel of more than 8 bits

_Array = np.ndarray[Any, np.dtype[Any]]

Source = str | os.PathLike[str] | bytes
"""A path, or the bytes that a file holds."""


class Header(NamedTuple):
    """What a file says of itself before anything is decoded; the size is the one after EXIF rotation."""

    format: str
    mode: str
    width: int
    height: int


def decode(source: Source) -> Tensor:
    """Decodes any image into uint8 RGB (3, H, W); in memory it is (H, W, 3), which torch calls channels last.

    The first frame counts, EXIF orientation is applied, and transparency is laid over white. A grey of 16 bits is
    scaled by the full range, 65535 to 255. Whole numbers of 32 bits and floats have no agreed range: floats in [0, 1]
    are scaled by 255, anything in [0, 255] is taken as it is, in [0, 65535] as 16 bits, and all else is stretched from
    its lowest value to its highest. Colours of 16 bits keep their upper 8.

    A file that cannot be read raises `Unreadable`, one that Pillow takes for a decompression bomb included.
    """
    return to_rgb(_load(source))


def decode_own(source: Source) -> Tensor:
    """Decodes into (C, H, W) in its own unit: uint8 for 8 bits, 3 channels or 1; float32 for one channel of more bits.

    Palettes and CMYK become RGB, black and white becomes 0 and 255; EXIF and transparency as in `decode`.
    """
    return own_of(_load(source))


def decode_array(path: str | os.PathLike[str]) -> Tensor:
    """Reads (C, H, W) from a `.npy` file: uint8 stays, true and false become 255 and 0, all else becomes float32.

    A 2-D array has one channel. Of a 3-D array's first and last axis the shorter is the channels, the first if they are
    equal. Nothing is unpickled. NaN, which sensors write where they saw nothing, stays.
    """
    with unreadable():
        stored = np.load(path, mmap_mode="r", allow_pickle=False)  # a header that lies about its size allocates nothing
        return torch.from_numpy(_channels_first(np.asarray(stored)))


def read_header(source: Source) -> Header:
    """Reads format, mode and size from a file's first bytes. The mode is in words: "16-bit grey", "palette+alpha"."""
    with unreadable(), _open(source) as image:
        width, height = image.size
        turned = image.format in ("JPEG", "MPO") and image.getexif().get(_ORIENTATION, 1) >= 5
        width, height = (height, width) if turned else (width, height)
        return Header(str(image.format), _mode(image), width, height)


def to_rgb(image: Image.Image) -> Tensor:
    """Converts a loaded image to uint8 (3, H, W); see `decode`."""
    if image.mode in _DEEP:
        grey = torch.from_numpy(_eight_bits(np.array(image), image.mode))
        return grey[..., None].expand(-1, -1, 3).contiguous().permute(2, 0, 1)
    image = _opaque(image)
    image = image if image.mode == "RGB" else image.convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def own_of(image: Image.Image) -> Tensor:
    """Converts a loaded image to (C, H, W) in its own unit; see `decode_own`."""
    if image.mode in _DEEP:
        return torch.from_numpy(np.array(image, dtype=np.float32))[None]
    if image.mode in ("1", "L", "LA", "La"):
        return torch.from_numpy(np.array(_opaque(image).convert("L")))[None]
    return to_rgb(image)


@contextmanager
def unreadable() -> Iterator[None]:
    """Makes `Unreadable` of whatever a broken file makes a library raise, which is almost anything."""
    try:
        yield
    except (MemoryError, ImportError):  # no fault of the file's
        raise
    except Exception as error:
        raise Unreadable(reason(error)) from error


def reason(error: BaseException) -> str:
    """Says in one line why a file cannot be read, without its name."""
    if isinstance(error, Unreadable):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "the file is gone, or a link that leads nowhere"
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format, or damaged at its start"
    if isinstance(error, Image.DecompressionBombError):
        return f"too large: Pillow's limit is {2 * (Image.MAX_IMAGE_PIXELS or 0)} pixels"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = one_line(str(error))
    speaks = text and isinstance(error, OSError | SyntaxError | ValueError)  # others, such as KeyError, say only what
    return (text if speaks else f"{type(error).__name__} {text}".strip())[:200]


def _open(source: Source) -> Image.Image:
    if isinstance(source, bytes):
        if not source:
            raise Unreadable("the file is empty")
        return Image.open(io.BytesIO(source), formats=FORMATS)
    try:
        return Image.open(source, formats=FORMATS)
    except UnidentifiedImageError:
        if os.path.getsize(source) == 0:
            raise Unreadable("the file is empty") from None
        raise


def _load(source: Source) -> Image.Image:
    """Opens an image once, decodes it, turns it upright and closes it."""
    with unreadable():
        image = _open(source)
        with image:
            image.load()
            if image.getexif().get(_ORIENTATION, 1) != 1:
                ImageOps.exif_transpose(image, in_place=True)
        return image


def _opaque(image: Image.Image) -> Image.Image:
    """Lays transparency over white."""
    if not image.has_transparency_data:
        return image
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA"))


def _eight_bits(array: _Array, mode: str) -> _Array:
    if mode.startswith("I;16"):
        return _scaled(array, 0, 65535)
    array = np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 65535:
        return _scaled(array, low, high)
    if mode == "F" and high <= 1:
        return _scaled(array, 0, 1)
    return _scaled(array, 0, 255 if high <= 255 else 65535)


def _scaled(array: _Array, low: float, high: float) -> _Array:
    scale = 255 / (high - low) if high > low else 0.0
    scaled: _Array = ((array.astype(np.float32) - np.float32(low)) * np.float32(scale) + np.float32(0.5)).astype(
        np.uint8
    )
    return scaled


def _channels_first(array: _Array) -> _Array:
    if array.ndim not in (2, 3) or array.size == 0 or array.dtype.kind not in "buif":
        raise Unreadable(f"expected numbers (H, W), (H, W, C) or (C, H, W), got {array.dtype} {array.shape}")
    if array.ndim == 2:
        array = array[None]
    elif array.shape[2] < array.shape[0]:
        array = array.transpose(2, 0, 1)
    if array.dtype == bool:
        array = array.astype(np.uint8) * np.uint8(255)
    return np.array(array, dtype=np.uint8 if array.dtype == np.uint8 else np.float32, order="C")


def _mode(image: Image.Image) -> str:
    mode = image.mode.removesuffix("A").removesuffix("a")
    alpha = "+alpha" if image.has_transparency_data else ""
    if mode.startswith("I;16"):
        return "16-bit grey"
    return ("16-bit " if ";16" in _raw_mode(image) else "") + _MODES.get(mode, mode) + alpha


def _raw_mode(image: Image.Image) -> str:
    """How the pixels lie in the file, which for 16 bits is more than Pillow keeps; empty where Pillow does not say."""
    tile: Any = getattr(image, "tile", None)
    if not tile:
        return ""
    arguments = tile[0][3]
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""
