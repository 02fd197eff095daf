"""What a tower sees, by name: a modality (`Modality`), or channels of one in a colour space: `View`, `VIEWS`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.views.colour_spaces import SPACES

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # of CIFAR-10's training set


@dataclass(frozen=True)
class Modality:
    """What may be done to the values of a modality; its geometry is that of the sample.

    mean, std  the network sees (x - mean) / std, per channel or one number for all; x is in [0, 1] for uint8 pictures
               and in the modality's own unit otherwise
    colour     jitter, greyscale, blur and solarise apply: for pictures of three channels
    nearest    values are never mixed: for masks and labels, which also keep their numbers 0 to 255
    vectors    the values are vectors in the picture, which turn with it: channel 0 points to the right, 1 down, 2 away.
               "directions", such as surface normals: a flip changes the sign of x (of uint8, x becomes 255 - x).
               "displacements" in pixels, such as optical flow: they also grow as the crop is enlarged
    nodata     the raw value of pixels where a sensor saw nothing. They become the mean, which is 0 for the network,
               before anything is mixed; so do NaN and infinity
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    colour: bool = False
    nearest: bool = False
    vectors: Literal["directions", "displacements"] | None = None
    nodata: float | None = None

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise UserError(None, f"mean={self.mean}, std={self.std}: as many numbers each, and std above 0")

    def unit(self, like: Tensor) -> float:
        """Factor that brings pictures of 0 to 255 to [0, 1]."""
        return 1 / 255 if like.dtype == torch.uint8 and not self.nearest else 1.0

    def holes(self, images: Tensor) -> Tensor | None:
        """Where values hold no data; None where all of such values do."""
        if self.nodata is None:
            return ~images.isfinite() if images.is_floating_point() else None
        return (images == self.nodata) | ~images.isfinite()

    def filled(self, images: Tensor) -> Tensor:
        """Values (..., C, H, W) with the mean where there is no data."""
        holes = self.holes(images)
        if holes is None:
            return images
        mean = torch.tensor(self.mean, device=images.device).div(self.unit(images)).view(-1, 1, 1)
        return torch.where(holes, (mean if images.is_floating_point() else mean.round()).to(images.dtype), images)


PICTURE = Modality(*IMAGENET, colour=True)


def usual(name: str, image: Tensor, picture: Modality) -> Modality:
    """Says what a modality (..., C, H, W) is taken for by its name and kind where nobody says.

    `normal...` of three channels are directions, `flow...` of two floats displacements; three channels of uint8 are a
    picture; of others label maps are never mixed, and anything else is only cropped and flipped.
    """
    channels, whole = image.shape[-3], image.dtype == torch.uint8
    if name.startswith("normal") and channels == 3:
        return Modality(vectors="directions")
    if name.startswith("flow") and channels == 2 and not whole:
        return Modality(vectors="displacements")
    return picture if whole and channels == 3 else Modality(nearest=is_label_map(name))


def checked(name: str, modality: Modality, image: Tensor) -> Modality:
    """Returns the modality if its settings fit such values (..., C, H, W), and raises what is wrong otherwise."""
    channels = image.shape[-3]
    if modality.colour and channels != 3:
        raise UserError(None, f"modality {name!r} has {channels} channels: only pictures of 3 take colour=True")
    if len(modality.mean) not in (1, channels):
        raise UserError(
            None, f"modality {name!r} has {channels} channels, its mean {len(modality.mean)}: give one or as many"
        )
    if modality.vectors and channels not in (2, 3):
        raise UserError(None, f"modality {name!r} has {channels} channels: vectors have 2 or 3, x, y and z")
    if modality.vectors == "displacements" and image.dtype == torch.uint8:
        raise UserError(None, f"modality {name!r} is of uint8: displacements are numbers of pixels, give floats")
    return modality


@dataclass(frozen=True)
class View:
    """The part of a modality that a tower sees, taken after crop, flip and colour, before normalisation.

    modality   the raw input that it is derived from
    channels   those that are kept, of the colour space where there is one; None: all
    space      the colour space into which a picture is converted, a row of `SPACES`; None: left as it is
    mean, std  the network sees (x - mean) / std, per kept channel; None: those of the space or of the modality

    >>> VIEWS["ab"] == View("image", channels=(1, 2), space="lab")
    """

    modality: str = "image"
    channels: tuple[int, ...] | None = None
    space: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.space is not None and self.space not in SPACES:
            raise UserError("space", f"there is no colour space {self.space!r}; give {', '.join(SPACES)}")
        if self.channels is not None and not self.channels:
            raise UserError("channels", "a view has at least one; leave it out for all of them")
        if len(self.mean or ()) != len(self.std or ()) or min(self.std or (1.0,)) <= 0:
            raise UserError("mean", f"mean={self.mean}, std={self.std}: as many numbers each, and std above 0")

    def width(self, channels: int) -> int:
        """The number of channels of this view of a modality that has so many."""
        if self.space is not None and channels != 3:
            raise UserError("space", f"{self.space} is made of three channels, {self.modality!r} has {channels}")
        if self.channels is not None and not 0 <= min(self.channels) <= max(self.channels) < channels:
            raise UserError("channels", f"{self.channels}: {self.modality!r} has channels 0 to {channels - 1}")
        width = channels if self.channels is None else len(self.channels)
        if self.mean is not None and len(self.mean) not in (1, width):
            raise UserError("mean", f"{len(self.mean)} numbers for the {width} channels of a view of {self.modality!r}")
        return width

    def statistics(self, modality: Modality) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of the kept channels."""
        if self.mean is not None and self.std is not None:
            return self.mean, self.std
        mean, std = (modality.mean, modality.std) if self.space is None else SPACES[self.space][1:]
        kept = self.channels if self.channels is not None and len(mean) > 1 else range(len(mean))
        return tuple(mean[c] for c in kept), tuple(std[c] for c in kept)

    def taken(self, planes: Tensor) -> Tensor:
        """The kept channels of planes (C, n, h, w), as a copy."""
        return planes.clone() if self.channels is None else torch.stack([planes[c] for c in self.channels])


def _split(alone: str, rest: str, space: str | None, channel: int = 0) -> dict[str, View]:
    """Two views of a picture: one channel of a colour space, and the other two."""
    others = tuple(each for each in range(3) if each != channel)
    return {alone: View(space=space, channels=(channel,)), rest: View(space=space, channels=others)}


VIEWS: dict[str, View] = {  # derived ones; every modality is a view under its own name
    **_split("L", "ab", "lab"),
    **_split("Y", "DbDr", "ydbdr"),
    **_split("Y_YCbCr", "CbCr", "ycbcr"),  # the Y of YDbDr in other units: normalised they agree to 1e-3
    **_split("H_HSV", "SV", "hsv"),
    **_split("H_HED", "ED", "hed"),
    **_split("R", "GB", None),
    **_split("G", "RB", None, 1),
    **_split("B", "RG", None, 2),
}


def view_named(name: str, reference: str) -> View:
    """The derived view of this name, of the reference modality; any other name is that of a modality."""
    return replace(VIEWS[name], modality=reference) if name in VIEWS else View(name)
