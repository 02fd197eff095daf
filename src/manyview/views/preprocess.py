"""A picture as an encoder wants it: what evaluation sees, for one picture at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from manyview.views.stack import PICTURE, Sensor, Stack
from manyview.views.stacks import probe_test


class Preprocess:
    """A file, a Pillow image or a uint8 tensor (C, H, W) to (1, C, size, size): the middle, resized and normalised.

    >>> x = torch.cat([preprocess(path) for path in paths])
    """

    def __init__(self, size: int, channels: int = 3, picture: Sensor = PICTURE) -> None:
        self.size, self.channels = size, channels
        self._stack = Stack(probe_test(size).looks, picture=picture)

    def __call__(self, picture: str | Path | Image.Image | Tensor) -> Tensor:
        raw = picture if isinstance(picture, Tensor) else self._read(picture)
        if raw.dtype != torch.uint8 or raw.dim() != 3 or raw.shape[0] != self.channels:
            expected = f"({self.channels}, H, W) uint8"
            raise ValueError(f"picture: expected {expected}, got {tuple(raw.shape)} {raw.dtype}")
        ids = torch.zeros(1, dtype=torch.long)
        if self._stack.at_once(raw[None]):  # as the loader does it, which rounds where it does not
            return self._stack({"image": raw[None]}, ids)["image"][0]
        views = self._stack.prepare({"image": raw}, 0)
        return self._stack.finish({"image": [view[None] for view in views["image"]]}, ids)["image"][0]

    def _read(self, picture: str | Path | Image.Image) -> Tensor:
        image = picture if isinstance(picture, Image.Image) else ImageOps.exif_transpose(Image.open(picture))
        mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(self.channels)
        if mode is None:
            raise ValueError(f"picture: an encoder of {self.channels} channels takes tensors, not image files")
        array = np.asarray(image.convert(mode))
        return torch.from_numpy(array.copy()).reshape(*array.shape[:2], self.channels).permute(2, 0, 1)
