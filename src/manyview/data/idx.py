"""The idx files of MNIST and of the sets made like it, gzipped or not."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from manyview.core.errors import UserError


def find_idx(folder: Path, train: bool) -> tuple[Path, Path] | None:
    """Finds the files of images and labels in a folder, if both are there."""
    stem = "train" if train else "t10k"
    for ending in ("", ".gz"):
        images, labels = (folder / f"{stem}-{what}-ubyte{ending}" for what in ("images-idx3", "labels-idx1"))
        if images.is_file() and labels.is_file():
            return images, labels
    return None


def read_idx(path: Path) -> Tensor:
    """Reads uint8 of the shape that the file declares: two zeros, the type (8), the number of axes, their sizes."""
    try:
        stored = path.read_bytes()
        data = bytearray(gzip.decompress(stored) if path.suffix == ".gz" else stored)
    except (OSError, EOFError, zlib.error) as error:  # a damaged gzip raises any of them
        raise UserError(str(path), f"cannot be read ({error}); delete it and fetch it again") from error
    axes = data[3] if len(data) > 3 else 0
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    if data[:3] != b"\0\0\x08" or not axes or len(data) != 4 + 4 * axes + math.prod(shape):
        why = f"not an idx file of bytes, or cut short at {len(data)} bytes; delete it and fetch it again"
        raise UserError(str(path), why)
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * axes).view(shape)
