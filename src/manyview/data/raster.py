"""Decodes a file of any sensor in its own unit: images, TIFF with any number of bands, `.npy` arrays."""

from __future__ import annotations

import io
import logging
import math
import os
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from manyview.core.errors import UserError
from manyview.data.dataset import Unreadable
from manyview.data.image import (
    EXTENSIONS,
    MAX_PIXELS,
    Array,
    Header,
    Source,
    channels_first,
    check_regular,
    check_size,
    decode_array,
    decode_own,
    numbers,
    open_array,
    open_image,
    read_header,
    unreadable,
)

RASTERS = (*EXTENSIONS, ".npy")
"""What the names of files of modalities end in."""
NO_DATA = 42113  # the tag in which GDAL writes which value means that nothing was seen
_BANDS, _PHOTOMETRIC, _BITS, _CMYK = 277, 262, 258, 5
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # the latter two are BigTIFF's


def decode_raster(source: Source, max_pixels: int = MAX_PIXELS) -> Tensor:
    """Decodes a file, or its bytes, into (C, H, W): uint8 for 8 bits, float32 in its own unit for anything else.

    Images are read as `decode_own` has it, `.npy` files as `decode_array`. A TIFF keeps all its bands, a fourth one
    beside RGB included, planar or interleaved, or a page each; CMYK alone becomes RGB. Bands of more than 8 bits, or
    more than three, are read by tifffile (`pip install 'manyview[geo]'`). Values that a GeoTIFF itself declares to be
    no data become NaN where they are not of 8 bits.
    """
    if not isinstance(source, bytes) and os.fspath(source).lower().endswith(".npy"):
        return decode_array(source, max_pixels)
    if not _is_tiff(source):
        return decode_own(source, max_pixels)
    with unreadable():
        image = _plain_tiff(source, max_pixels)
        if image is None:
            return _bands(source, max_pixels)
        with image:
            declared = _number(getattr(image, "tag_v2", {}).get(NO_DATA))
        return _without(decode_own(source, max_pixels), declared)


def raster_header(source: Source, max_pixels: int) -> Header:
    """What a file says of itself before anything is decoded; the mode of several bands is such as "13 x uint16"."""
    with unreadable():
        if not isinstance(source, bytes) and os.fspath(source).lower().endswith(".npy"):
            return _header("NPY", channels_first(open_array(source, max_pixels)))
        if not _is_tiff(source):
            return read_header(source, max_pixels)
        image = _plain_tiff(source, max_pixels)
        if image is not None:
            image.close()
            return read_header(source, max_pixels)
        with _opened(source) as file:
            return _header("TIFF", _layout(file, max_pixels)[1])


def _header(format: str, planes: Array) -> Header:
    channels, height, width = planes.shape
    return Header(format, f"{channels} x {planes.dtype}", width, height)


def _is_tiff(source: Source) -> bool:
    if isinstance(source, bytes):
        return source.startswith(_TIFF)
    if not os.fspath(source).lower().endswith((".tif", ".tiff")):
        return False
    beginning = b""
    with suppress(OSError, Unreadable):  # whoever reads it says what is wrong
        check_regular(source)
        with open(source, "rb") as file:
            beginning = file.read(4)
    return beginning in _TIFF


def _plain_tiff(source: Source, max_pixels: int) -> Image.Image | None:
    """Opens a TIFF that Pillow reads whole: one page, of one band, RGB of 8 bits, or CMYK; None for others."""
    with suppress(UnidentifiedImageError, SyntaxError):
        image = open_image(source, max_pixels)
        tags: Any = getattr(image, "tag_v2", {})
        bands, bits = int(tags.get(_BANDS, 1)), int(np.max(tags.get(_BITS, 1)))
        whole = bands == 1 or (bands == 3 and bits <= 8) or tags.get(_PHOTOMETRIC) == _CMYK
        if whole and getattr(image, "n_frames", 1) == 1:
            return image
        image.close()
    return None


def _opened(source: Source) -> Any:
    try:
        import tifffile
    except ImportError:
        name = "a TIFF file" if isinstance(source, bytes) else os.fspath(source)
        why = "has several bands or pages, or numbers that Pillow does not read"
        raise UserError("data", f"{name} {why}, which needs tifffile: pip install 'manyview[geo]'") from None
    logging.getLogger("tifffile").disabled = True  # what is wrong with a file is said once, by whoever reads it
    return tifffile.TiffFile(io.BytesIO(source) if isinstance(source, bytes) else os.fspath(source))


def _bands(source: Source, max_pixels: int) -> Tensor:
    with _opened(source) as file:
        axes, _ = _layout(file, max_pixels)
        declared = _number(getattr(file.pages[0].tags.get(NO_DATA), "value", None))
        return _without(torch.from_numpy(numbers(_planes(file.series[0].asarray(), axes))), declared)


def _layout(file: Any, max_pixels: int) -> tuple[str, Array]:
    """The names of the axes, and an array (C, H, W) of the shape and type that the tags promise, of no memory."""
    series = file.series[0]
    check_size(" x ".join(map(str, series.shape)), math.prod(map(int, series.shape)) // 4, max_pixels)
    return series.axes, _planes(np.broadcast_to(np.zeros((), series.dtype), series.shape), series.axes)


def _planes(array: Array, axes: str) -> Array:
    """(C, H, W) of the first image of a TIFF: where its tags name the samples of a pixel, S, these are the channels."""
    single = tuple(place for place, axis in enumerate(axes) if array.shape[place] == 1 and axis not in "YX")
    named = "".join(axis for place, axis in enumerate(axes) if place not in single)
    array = array.squeeze(single)
    return np.moveaxis(array, named.index("S"), 0) if "S" in named and array.ndim == 3 else channels_first(array)


def _number(text: object) -> float | None:
    """The value of GDAL's tag, a text; None where there is none that makes sense."""
    with suppress(TypeError, ValueError):
        return float(str(text).strip("\0 "))
    return None


def _without(tensor: Tensor, declared: float | None) -> Tensor:
    if declared is None or not tensor.is_floating_point():
        return tensor
    return tensor.masked_fill_(tensor == torch.tensor(declared, dtype=tensor.dtype), torch.nan)
