"""Preprocessing: pictures as evaluation shows them to an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError
from manyview.data import Unreadable
from manyview.data.image import decode, decode_own, own_of, to_rgb
from manyview.views import AUGMENTATIONS, PICTURE, Modality, View, ViewPipeline

Picture = str | Path | Image.Image | Tensor
WHOLE = View("image")  # all of a picture


class Preprocess:
    """A file, a Pillow image or a uint8 tensor (C, H, W) to (1, C, size, size): the middle, resized and normalised.

    Files are read as training reads them: turned as EXIF says, transparency over white, 16 bits scaled to 8.

    A list of them becomes (n, C, size, size).

    channels  of the picture
    picture   the normalisation of pictures of three channels
    view      what the encoder sees of the picture, such as its lightness

    >>> x = preprocess(["cat.jpg", "dog.jpg"])
    """

    def __init__(self, size: int, channels: int = 3, picture: Modality = PICTURE, view: View = WHOLE) -> None:
        self.size, self.channels, self.picture, self.view = size, channels, picture, replace(view, modality="image")
        made = ViewPipeline(AUGMENTATIONS["probe-test"](size).augmentations, picture=picture)
        self._pipeline = made.of({"image": 1}, views={"image": self.view})

    def __repr__(self) -> str:
        """Says what somebody who has the weights alone must do to a picture."""
        (augmentation,) = self._pipeline.augmentations
        modality = self._pipeline.modality("image", torch.empty(self.channels, 1, 1).byte())
        mean, std = self.view.statistics(modality)
        x = "x / 255" if self.view.space is None else f"channels {self.view.channels} of {self.view.space}"
        values = x if mean == (0.0,) else f"({x} - {mean}) / {std}"
        return f"short side to {augmentation.resize} px, the middle {self.size} x {self.size} of it, {values}"

    def __call__(self, picture: Picture | Sequence[Picture]) -> Tensor:
        if isinstance(picture, list | tuple):
            return torch.cat([self(each) for each in picture])
        if not isinstance(picture, str | Path | Image.Image | Tensor):
            raise UserError("picture", f"expected a file, a Pillow image or a tensor, got {type(picture).__name__}")
        raw = picture if isinstance(picture, Tensor) else self._read(picture)
        if raw.dtype != torch.uint8 or raw.dim() != 3 or raw.shape[0] != self.channels:
            expected = f"({self.channels}, H, W) uint8"
            raise UserError("picture", f"expected {expected}, got {tuple(raw.shape)} {raw.dtype}")
        return as_seen(self._pipeline, [raw])

    def _read(self, picture: str | Path | Image.Image) -> Tensor:
        colour = self.channels == 3
        if isinstance(picture, Image.Image):
            return to_rgb(picture) if colour else own_of(picture)
        try:
            return decode(picture) if colour else decode_own(picture)
        except Unreadable as error:
            raise UserError("picture", f"{picture} cannot be read: {error}") from None


def as_seen(pipeline: ViewPipeline, pictures: Sequence[Tensor], modality: str = "image") -> Tensor:
    """The one view (n, C, size, size) that a pipeline makes of pictures (C, H, W); those of one size at once.

    They are made as the loader makes them, which rounds large ones to 8 bits on the way.
    """
    if len({(each.shape, each.dtype) for each in pictures}) > 1:
        return torch.cat([as_seen(pipeline, [each], modality) for each in pictures])
    if not pictures:
        return torch.empty(0)
    ids = torch.zeros(len(pictures), dtype=torch.long)
    if pipeline.at_once(pictures[0][None]):
        (copies,) = pipeline({modality: torch.stack(list(pictures))}, ids).values()
    else:
        crops = [pipeline.prepare({modality: each}, 0)[modality][0] for each in pictures]
        (copies,) = pipeline.finish({modality: [torch.stack(crops)]}, ids).values()
    return copies[0]
