"""What is known of a modality: how it is normalised, and what may be done to its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # of CIFAR-10's training set
MASKS = ("label", "mask", "semantic", "instance", "segmentation")  # what the names of such modalities begin with


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
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    colour: bool = False
    nearest: bool = False
    vectors: Literal["directions", "displacements"] | None = None

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise UserError(None, f"mean={self.mean}, std={self.std}: as many numbers each, and std above 0")

    def unit(self, like: Tensor) -> float:
        """Factor that brings pictures of 0 to 255 to [0, 1]."""
        return 1 / 255 if like.dtype == torch.uint8 and not self.nearest else 1.0


PICTURE = Modality(*IMAGENET, colour=True)


def usual(name: str, image: Tensor, picture: Modality) -> Modality:
    """Says what a modality (..., C, H, W) is taken for by its name and kind where nobody says.

    `normal...` of three channels are directions, `flow...` of two floats displacements, `MASKS` are never mixed; three
    channels of uint8 are a picture; anything else is only cropped and flipped.
    """
    channels, whole = image.shape[-3], image.dtype == torch.uint8
    if name.startswith("normal") and channels == 3:
        return Modality(vectors="directions")
    if name.startswith("flow") and channels == 2 and not whole:
        return Modality(vectors="displacements")
    return picture if whole and channels == 3 else Modality(nearest=name.startswith(MASKS))


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
