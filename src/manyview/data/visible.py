"""Makes pictures of any modality or view visible: depth, thermal, two channels, many bands, vectors, masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

Kind = Literal["values", "directions", "mask"]

TAILS = 0.02  # of the values at either end, which are cut off: one hot pixel must not make all others black
SAMPLED = 1 << 20  # values from which the range is taken, at most
# Red and green for the first of two channels, yellow and blue for the second: those of a and b in Lab.
OPPONENTS = ((0.5, -0.25, 0.1), (0.2, 0.1, -0.5))
UPWARDS = (1.0, -1.0, -1.0)  # right, up and towards us are bright: the usual colours of surface normals
GOLDEN = 0.381966  # turns from one number of a mask to the next, so that neighbours differ
HOLE = (0.93, 0.66, 0.78)  # where a sensor saw nothing: no grey, and no colour of the others
DARK = 0.2  # the brightness of a mask's 0, which is its background


def to_rgb(picture: Tensor, kind: Kind = "values", holes: Tensor | None = None) -> Image.Image:
    """Makes one picture (C, H, W) visible as three channels of bytes, in a range of its own; see `visible`."""
    return visible([picture], kind, [holes])[0]


def visible(
    pictures: Sequence[Tensor], kind: Kind = "values", holes: Sequence[Tensor | None] = ()
) -> list[Image.Image]:
    """Makes pictures (C, H, W) of one modality visible as three channels of bytes, all in the same range.

    values      1 or 3 channels of uint8 are shown as they are. Others are stretched from the 2nd to the 98th percentile
                of all pictures together, each channel by itself: one as grey; two as red and green, and yellow and
                blue, with grey at their median; of more the first three as red, green and blue
    directions  unit vectors x, y, z, each component from -1 to 1 (uint8: 0 to 255)
    mask        whole numbers, each with a colour of its own; 0 is dark

    holes       (C, H, W) by picture, where a sensor saw nothing, besides what is no number, such as NaN; None: nowhere

    A pixel without any value is pink (`HOLE`), which no dark one is; in a channel alone, a hole is 0.
    """
    masks = holes or [None] * len(pictures)
    empty = [_empty(picture, mask) for picture, mask in zip(pictures, masks, strict=True)]
    drawn = _drawn([_torn(picture, mask) for picture, mask in zip(pictures, masks, strict=True)], kind)
    return [_image(rgb, hole) for rgb, hole in zip(drawn, empty, strict=True)]


def _drawn(pictures: Sequence[Tensor], kind: Kind) -> list[Tensor]:
    """The colours (3 or 1, H, W) of pictures, in [0, 1] where they are numbers."""
    if kind == "mask":
        return [_colours_of_numbers(picture[0].float().nan_to_num()) for picture in pictures]
    if all(picture.dtype == torch.uint8 and picture.shape[0] in (1, 3) for picture in pictures):
        return [picture.float() / 255 for picture in pictures]
    values = [picture.float() for picture in pictures]
    if kind == "directions" and all(picture.shape[0] == 3 for picture in values):
        turned = torch.tensor(UPWARDS)[:, None, None]
        return [(picture * turned + 1) / 2 for picture in values]
    channels = min(3, *(picture.shape[0] for picture in values))
    ranges = [_range([picture[channel] for picture in values]) for channel in range(channels)]
    if channels == 2:
        return [_opponents(picture, ranges) for picture in values]
    low, high = (torch.tensor([each[end] for each in ranges])[:, None, None] for end in (0, 2))
    return [(picture[:channels] - low) / (high - low).clamp_min(1e-12) for picture in values]


def _torn(picture: Tensor, holes: Tensor | None) -> Tensor:
    """A picture without numbers in its holes, so that they take no part in its range; one of bytes as it is."""
    return picture if holes is None or picture.dtype == torch.uint8 else picture.float().masked_fill(holes, torch.nan)


def _empty(picture: Tensor, holes: Tensor | None) -> Tensor:
    """Tells which pixels (H, W) have no value in any channel."""
    nothing = ~picture.isfinite() if picture.is_floating_point() else torch.zeros_like(picture, dtype=torch.bool)
    return (nothing if holes is None else nothing | holes).all(0)


def _range(channel: Sequence[Tensor]) -> tuple[float, float, float]:
    """The 2nd, 50th and 98th percentile of what is a number."""
    every = max(1, sum(part.numel() for part in channel) // SAMPLED)
    found = torch.cat([part.flatten()[::every] for part in channel])
    found = found[found.isfinite()]
    if not len(found):
        return 0.0, 0.0, 0.0
    low, middle, high = found.quantile(torch.tensor([TAILS, 0.5, 1 - TAILS])).tolist()
    return low, middle, high


def _opponents(picture: Tensor, ranges: Sequence[tuple[float, float, float]]) -> Tensor:
    """Shows two channels as opposite colours around grey, on one scale for both."""
    reach = max(max(middle - low, high - middle) for low, middle, high in ranges)
    middles = torch.tensor([middle for _, middle, _ in ranges])[:, None, None]
    shares = ((picture - middles) / max(reach, 1e-12)).clamp(-1, 1)
    return 0.5 + torch.einsum("chw,cr->rhw", shares, torch.tensor(OPPONENTS))


def _colours_of_numbers(mask: Tensor) -> Tensor:
    """Shows numbers (H, W) as hues."""
    turns = torch.stack([mask * GOLDEN, mask * GOLDEN - 1 / 3, mask * GOLDEN + 1 / 3])
    pure = (2 - (6 * (turns - turns.round())).abs()).clamp(0, 1)
    return torch.where(mask > 0, pure * 0.8 + 0.2, torch.tensor(DARK))


def _image(rgb: Tensor, empty: Tensor) -> Image.Image:
    """Makes a picture of (3 or 1, H, W) in [0, 1], with its empty pixels (H, W) in the colour of a hole."""
    whole = torch.where(rgb.isfinite(), rgb, 0.0).clamp(0, 1).expand(3, -1, -1)
    shown = torch.where(empty, torch.tensor(HOLE)[:, None, None], whole).mul(255).round().to(torch.uint8)
    return Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy())
