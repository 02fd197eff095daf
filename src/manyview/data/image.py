"""Decodes image files and arrays into tensors."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from manyview.core.bounds import AtLeast, AtMost
from manyview.core.errors import UserError
from manyview.core.text import one_line
from manyview.data.dataset import Shrink, Unreadable
from manyview.data.jpeg import ORIENTATION, START, decode_jpeg

MAX_PIXELS = 1 << 26  # of a picture, 8,192 x 8,192; decoding takes up to about 20 bytes for each, in every process
PILLOWS_MOST = 178_956_970  # pixels that Pillow itself opens at most
MaxPixels = Annotated[int, AtLeast(1), AtMost(PILLOWS_MOST)]
EXTENSIONS = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm", ".pgm")

# Named one by one, because Pillow's full list holds formats that start other programs.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM")

_MODES = {"L": "grey", "P": "palette", "1": "1-bit", "I": "32-bit grey", "F": "float grey"}
_PIECE = 1 << 20  # numbers that are scaled at a time
_DEEP = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")  # one channel of more than 8 bits

Array = np.ndarray[Any, np.dtype[Any]]

Source = str | os.PathLike[str] | bytes
"""A path, or the bytes that a file holds."""


class Header(NamedTuple):
    """What a file says of itself before anything is decoded; the size is the one after EXIF rotation."""

    format: str
    mode: str
    width: int
    height: int


def decode(source: Source, max_pixels: int = MAX_PIXELS) -> Tensor:
    """Decodes any image into uint8 RGB (3, H, W); in memory it is (H, W, 3), which torch calls channels last.

    The first frame counts, EXIF orientation is applied, and transparency is laid over white. A grey of 16 bits is
    scaled by the full range, 65535 to 255. Whole numbers of 32 bits and floats have no agreed range: floats in [0, 1]
    are scaled by 255, anything in [0, 255] is taken as it is, in [0, 65535] as 16 bits, and all else is stretched from
    its lowest value to its highest. Colours of 16 bits keep their upper 8.

    A file that cannot be read raises `Unreadable`, one with more than `max_pixels` included: a few kilobytes can hold
    a picture that no memory holds. Its header says so, and nothing else is read. So does what is no regular file.
    """
    return decode_smaller(source, max_pixels)[0]


def decode_smaller(
    source: Source, max_pixels: int = MAX_PIXELS, shrink: Shrink | None = None
) -> tuple[Tensor, tuple[int, int]]:
    """Decodes as `decode` and gives the size (height, width) as well; a JPEG as much smaller than it as `shrink` says.

    Half of a size is rounded up, as libjpeg has it.
    """
    decoded = decode_if_jpeg(source, max_pixels, shrink=shrink)
    if decoded is not None:
        return decoded
    picture = to_rgb(_load(source, max_pixels))
    return picture, (picture.shape[1], picture.shape[2])


def decode_own(source: Source, max_pixels: int = MAX_PIXELS) -> Tensor:
    """Decodes into (C, H, W) in its own unit: uint8 for 8 bits, 3 channels or 1; float32 for one channel of more bits.

    Palettes and CMYK become RGB, black and white becomes 0 and 255; EXIF and transparency as in `decode`.
    """
    decoded = decode_if_jpeg(source, max_pixels, grey=True)
    return own_of(_load(source, max_pixels)) if decoded is None else decoded[0]


def decode_array(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> Tensor:
    """Reads (C, H, W) from a `.npy` file: uint8 stays, true and false become 255 and 0, all else becomes float32.

    A 2-D array has one channel. Of a 3-D array's first and last axis the shorter is the channels, the first if they are
    equal. Nothing is unpickled. NaN, which sensors write where they saw nothing, stays. Limits are those of `decode`,
    for four channels.
    """
    with unreadable():
        return torch.from_numpy(numbers(channels_first(open_array(path, max_pixels))))


def open_array(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> Array:
    """Opens a `.npy` file and reads its header alone: one that lies about its size allocates nothing."""
    check_regular(path)
    stored = np.load(path, mmap_mode="r", allow_pickle=False)
    check_size(" x ".join(map(str, stored.shape)), stored.size // 4, max_pixels)
    return np.asarray(stored)


def read_header(source: Source, max_pixels: int = MAX_PIXELS) -> Header:
    """Reads format, mode and size from a file's first bytes. The mode is in words: "16-bit grey", "palette+alpha"."""
    with unreadable(), open_image(source, max_pixels) as image:
        width, height = image.size
        turned = image.format in ("JPEG", "MPO") and image.getexif().get(ORIENTATION, 1) >= 5
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
    except (MemoryError, ImportError, UserError):  # no fault of the file's
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


def check_regular(path: str | os.PathLike[str]) -> int:
    """The size of a file. Of a pipe nothing may ever come, and of a device no end: they are unreadable."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("not a regular file: a folder, a pipe, a device, or a link to one")
    if status.st_size == 0:
        raise Unreadable("the file is empty")
    return status.st_size


def open_image(source: Source, max_pixels: int) -> Image.Image:
    if source == b"":
        raise Unreadable("the file is empty")
    if not isinstance(source, bytes):
        check_regular(source)
    image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)
    try:
        check_size(f"{image.width} x {image.height}", image.width * image.height, max_pixels)
    except Unreadable:
        image.close()
        raise
    return image


def check_size(shape: str, pixels: int, most: int) -> None:
    if pixels > most:
        raise Unreadable(f"too large: {shape} pixels, more than max_pixels={most:,} in all")


def decode_if_jpeg(
    source: Source, max_pixels: int, *, grey: bool = False, shrink: Shrink | None = None
) -> tuple[Tensor, tuple[int, int]] | None:
    """Decodes a JPEG into (C, H, W), channels last in memory, and gives its whole size; None if it is no JPEG, or one
    for Pillow. With `grey` one without colours has one channel, else three."""
    with unreadable():
        data = _jpeg_bytes(source, 4 * max_pixels)
        if data is None:
            return None
        found = decode_jpeg(
            data, lambda height, width: check_size(f"{width} x {height}", width * height, max_pixels),
            grey=grey, shrink=shrink,
        )  # fmt: skip
        return None if found is None else (torch.from_numpy(found[0]).permute(2, 0, 1), found[1])


def _jpeg_bytes(source: Source, most: int) -> bytes | None:
    """What a JPEG file holds; None if it is another one, or has more than so many bytes."""
    if isinstance(source, bytes):
        return source if source.startswith(START) else None
    if check_regular(source) > most:
        return None
    with open(source, "rb", buffering=0) as file:
        if file.read(len(START)) != START:
            return None
        file.seek(0)
        return file.readall()


def _load(source: Source, max_pixels: int) -> Image.Image:
    """Opens an image once, decodes it, turns it upright and closes it."""
    with unreadable():
        image = open_image(source, max_pixels)
        with image:
            image.load()
            if image.getexif().get(ORIENTATION, 1) != 1:
                ImageOps.exif_transpose(image, in_place=True)
        return image


def _opaque(image: Image.Image) -> Image.Image:
    """Lays transparency over white."""
    if not image.has_transparency_data:
        return image
    image = image if image.mode == "RGBA" else image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _eight_bits(array: Array, mode: str) -> Array:
    """Scales to 0 to 255, a piece at a time, so that what is between takes little memory."""
    flat, scaled = array.reshape(-1), np.empty(array.shape, np.uint8)
    pieces = [slice(start, start + _PIECE) for start in range(0, flat.size, _PIECE)]
    low, high = 0.0, 65535.0
    if not mode.startswith("I;16"):
        low = float(min(_finite(flat[piece]).min() for piece in pieces))
        high = float(max(_finite(flat[piece]).max() for piece in pieces))
        if low >= 0 and high <= 65535:
            low, high = 0.0, 1.0 if mode == "F" and high <= 1 else 255.0 if high <= 255 else 65535.0
    scale = 255 / (high - low) if high > low else 0.0
    for piece in pieces:
        whole = (_finite(flat[piece]).astype(np.float32) - np.float32(low)) * np.float32(scale) + np.float32(0.5)
        scaled.reshape(-1)[piece] = whole.astype(np.uint8)
    return scaled


def _finite(array: Array) -> Array:
    finite: Array = np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)
    return finite


def channels_first(array: Array) -> Array:
    """(C, H, W) of an array of numbers: of the first and last of three axes the shorter is the channels."""
    if array.ndim not in (2, 3) or array.size == 0 or array.dtype.kind not in "buif":
        raise Unreadable(f"expected numbers (H, W), (H, W, C) or (C, H, W), got {array.dtype} {array.shape}")
    if array.ndim == 2:
        return array[None]
    return array.transpose(2, 0, 1) if array.shape[2] < array.shape[0] else array


def numbers(array: Array) -> Array:
    """The same numbers as uint8 or float32; true and false become 255 and 0."""
    if array.dtype.kind not in "buif":
        raise Unreadable(f"expected numbers, got {array.dtype}")
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
