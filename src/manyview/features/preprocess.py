"""Preprocessing: converts pictures to the input of an encoder, as in evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.json_file import as_type, parse_json
from manyview.core.text import printable, reason
from manyview.data import Unreadable
from manyview.data.image import decode, own_of, to_rgb
from manyview.data.raster import decode_raster
from manyview.views import AUGMENTATIONS, PICTURE, Modality, View, ViewPipeline

Picture = str | Path | Image.Image | Tensor
DTYPES = ("uint8", "float32")
WHOLE = View("image")  # all of a picture


@dataclass(frozen=True)
class EncoderInput:
    """Describes the input that an encoder was trained on: the raw form, its normalisation, and what is taken of it.

    channels, dtype  of the raw input (C, H, W): "uint8", or "float32" in the modality's own unit
    modality         the normalisation of its values
    view             which modality it is, and the channels and the colour space that are taken of it
    """

    channels: int = 3
    dtype: str = "uint8"
    modality: Modality = PICTURE
    view: View = WHOLE

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or self.channels < 1:
            raise UserError("dtype", f"expected channels of {' or '.join(DTYPES)}, got {self.channels} of {self.dtype}")
        self.view.width(self.channels)

    @property
    def is_picture(self) -> bool:
        """Whether the raw input is RGB of 8 bits, which every picture can be converted to."""
        return (self.channels, self.dtype) == (3, "uint8")

    @property
    def form(self) -> str:
        """The form of the raw input, in words."""
        return form_in_words(self.channels, self.dtype)

    def check_file(self, file: str | Path, what: str) -> None:
        """Refuses an image file of another form than the raw input.

        Grey of 8 bits becomes RGB, as in training; one channel of more bits is a sensor's measurement, and no RGB.
        """
        with suppress(Unreadable):
            raw = decode_raster(file)
            grey = self.is_picture and raw.dtype == torch.uint8 and len(raw) == 1
            if not grey and (len(raw), _name(raw.dtype)) != (self.channels, self.dtype):
                found = form_in_words(len(raw), _name(raw.dtype))
                raise UserError("view", f"{printable(str(file))} is {found}, and {what} was trained on {self.form}")

    @property
    def is_plain(self) -> bool:
        """Whether it is a whole picture, which mean and std describe completely."""
        return self == EncoderInput(modality=Modality(*self.normalisation, colour=True))

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of the channels that are taken."""
        return self.view.statistics(self.modality)

    def pipeline(self, size: int, augmentation: str = "probe-test", *, name: str = "image") -> ViewPipeline:
        """Makes the pipeline of the one view, for data that calls its modality `name`."""
        made = ViewPipeline(AUGMENTATIONS[augmentation](size).augmentations, {name: self.modality})
        return made.of({name: 1}, views={name: replace(self.view, modality=name)})

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str, file: str | Path) -> EncoderInput:
        """Reads what `to_json` returned, from a file of any origin."""
        try:
            found: EncoderInput = as_type(parse_json(text), cls)
        except ValueError as error:
            raise UserError(None, f"{file}: what it says of its encoder's input is damaged: {reason(error)}") from None
        return found


def form_in_words(channels: int, dtype: str) -> str:
    """Describes a tensor (C, H, W) of `decode_raster`: "RGB of 8 bits", "1 channel of 16 bits or floats"."""
    if (channels, dtype) == (3, "uint8"):
        return "RGB of 8 bits"
    return f"{channels} channel{'s' if channels > 1 else ''} of {'8 bits' if dtype == 'uint8' else '16 bits or floats'}"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Preprocess:
    """Converts a file, a Pillow image or a tensor (C, H, W) to (1, C, size, size): centre crop, normalised.

    Files are read as in training: pictures turned by their EXIF orientation, transparency over white, 16 bits scaled to
    8; other modalities in their own unit.

    A list of them becomes (n, C, size, size).

    channels  of the picture
    picture   the normalisation of pictures of three channels
    view      what is taken of the picture, such as its lightness
    input     all of that, where it is known

    >>> x = preprocess(["cat.jpg", "dog.jpg"])
    """

    def __init__(
        self,
        size: int,
        channels: int = 3,
        picture: Modality = PICTURE,
        view: View = WHOLE,
        *,
        input: EncoderInput | None = None,
    ) -> None:
        usual = picture if channels == 3 else Modality()
        self.size, self.input = size, input or EncoderInput(channels, "uint8", usual, view)
        self.channels, self.picture, self.view = self.input.channels, self.input.modality, self.input.view
        self._pipeline = self.input.pipeline(size)

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of the encoder's input."""
        return self.input.normalisation

    def timm_config(self) -> dict[str, Any]:
        """Returns the same preprocessing in timm's terms; where timm's transforms cannot do it, only the size."""
        size = {"input_size": [len(self.normalisation[0]), self.size, self.size]}
        (augmentation,) = self._pipeline.augmentations
        if not self.input.is_plain or augmentation.resize is None:
            return size
        mean, std = self.normalisation
        share = round(self.size / (augmentation.resize + 0.5), 6)  # timm rounds size / share down
        return {**size, "mean": list(mean), "std": list(std), "crop_pct": share, "interpolation": "bilinear"}

    def __repr__(self) -> str:
        """Describes the preprocessing that a user of the weights alone must do."""
        (augmentation,) = self._pipeline.augmentations
        mean, std = self.normalisation
        scaled = self.input.dtype == "uint8" and not self.picture.nearest
        x = "x / 255" if scaled else "x"
        if self.view.space is not None:
            x = f"channels {self.view.channels} of {self.view.space} of RGB {x}"
        elif self.view.channels is not None:
            x = f"channels {self.view.channels} of {x}"
        values = x if (set(mean), set(std)) == ({0.0}, {1.0}) else f"({x} - {mean}) / {std}"
        crop = f"short side to {augmentation.resize} px, the middle {self.size} x {self.size} of it"
        return f"{self._raw(scaled)}{crop}, {values}{self._measured(values)}"

    def _raw(self, scaled: bool) -> str:
        """Describes the raw input and what replaces missing data; empty for a plain picture."""
        if self.input.is_picture and self.picture.nodata is None:
            return ""
        unit = "" if scaled else " in the unit of the files, not scaled"
        nodata = "NaN and infinity" if self.picture.nodata is None else f"{self.picture.nodata:g}, NaN and infinity"
        mean = ", ".join(f"{round(255 * each) if scaled else each:g}" for each in self.picture.mean)
        holes = (
            "" if scaled and self.picture.nodata is None else f"; {nodata} are no data and become the mean {mean} first"
        )
        return f"x is {self.input.form}{unit}{holes}; "

    def _measured(self, values: str) -> str:
        """Describes where mean and std are from, where they are not those of pictures."""
        own = self.view.space is None and not self.picture.colour and "(x" in values
        return f", mean and std of {self.view.modality} in training" if own else ""

    def __call__(self, picture: Picture | Sequence[Picture]) -> Tensor:
        if isinstance(picture, list | tuple):
            return torch.cat([self(each) for each in picture])
        if not isinstance(picture, str | Path | Image.Image | Tensor):
            raise UserError("picture", f"expected a file, a Pillow image or a tensor, got {type(picture).__name__}")
        raw = picture if isinstance(picture, Tensor) else self._read(picture)
        form = f"({self.channels}, H, W) {self.input.dtype}"
        if raw.dtype != getattr(torch, self.input.dtype) or raw.dim() != 3 or raw.shape[0] != self.channels:
            got = f"{tuple(raw.shape)} {_name(raw.dtype)}"
            named = f" in {picture}" if isinstance(picture, str | Path) else ""
            raise UserError("picture", f"expected {form}, got {got}{named}")
        return as_seen(self._pipeline, [raw])

    def _read(self, picture: str | Path | Image.Image) -> Tensor:
        if isinstance(picture, Image.Image):
            return to_rgb(picture) if self.input.is_picture else own_of(picture)
        try:
            return decode(picture) if self.input.is_picture else decode_raster(picture)
        except Unreadable as error:
            raise UserError("picture", f"{picture} cannot be read: {error}") from None


def as_seen(pipeline: ViewPipeline, pictures: Sequence[Tensor], modality: str = "image") -> Tensor:
    """Makes the one view (n, C, size, size) of a pipeline from pictures (C, H, W), all of one size at once.

    They are made as in the loader, which rounds large ones to 8 bits on the way.
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
