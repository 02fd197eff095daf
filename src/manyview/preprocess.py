"""A picture as an encoder wants it: what evaluation sees, for one picture at a time."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from manyview.data import Unreadable
from manyview.data.image import decode, decode_own, own_of, to_rgb
from manyview.views import PICTURE, STACKS, Sensor, Stack


class Preprocess:
    """A file, a Pillow image or a uint8 tensor (C, H, W) to (1, C, size, size): the middle, resized and normalised.

    Files are read as training reads them: turned as EXIF says, transparency over white, 16 bits scaled to 8.

    >>> x = torch.cat([preprocess(path) for path in paths])
    """

    def __init__(self, size: int, channels: int = 3, picture: Sensor = PICTURE) -> None:
        self.size, self.channels = size, channels
        self._stack = Stack(STACKS["probe-test"](size).looks, picture=picture)

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
        colour = self.channels == 3
        if isinstance(picture, Image.Image):
            return to_rgb(picture) if colour else own_of(picture)
        try:
            return decode(picture) if colour else decode_own(picture)
        except Unreadable as error:
            raise ValueError(f"picture: {picture} cannot be read: {error}") from None
