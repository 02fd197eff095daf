"""Pictures of a segmentation: what the encoder saw, the right mask, below it the predicted one, and their colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from manyview.core.atomic import atomic_write
from manyview.data.visible import visible
from manyview.transfer.iou import IGNORED
from manyview.transfer.picture_sheet import Colour, sheet

SHOWN = 8  # pictures
SIDE = 128  # pixels of each
HEADINGS = ("picture", "mask", "predicted")
NO_CLASS = "no class"


class Segmented(NamedTuple):
    """A picture (C, H, W) as an encoder sees it, its classes (H, W), and the predicted ones."""

    picture: Tensor
    right: Tensor
    predicted: Tensor


def save_mask_pictures(samples: Sequence[Segmented], classes: Sequence[str], path: Path) -> None:
    """Writes one PNG: a column a picture, and the colour of each class that is there. Ignored pixels are dark."""
    rows = [
        visible([each.picture for each in samples]),
        visible([_numbers(each.right) for each in samples], "mask"),
        visible([_numbers(each.predicted) for each in samples], "mask"),
    ]
    sized = [
        [tile.resize((SIDE, SIDE), Image.Resampling.NEAREST if y else Image.Resampling.BICUBIC) for tile in row]
        for y, row in enumerate(rows)
    ]
    there = torch.cat([part.flatten().long() for each in samples for part in (each.right, each.predicted)]).unique()
    key = [(NO_CLASS if place == IGNORED else classes[place], _colour(place)) for place in there.tolist()]
    made = sheet(list(zip(HEADINGS, sized, strict=True)), key)
    with atomic_write(path) as draft:
        made.save(draft, format="PNG")


def _colour(place: int) -> Colour:
    """The colour of a class."""
    found = visible([_numbers(torch.tensor([[place]]))], "mask")[0].getpixel((0, 0))
    assert isinstance(found, tuple)
    red, green, blue = found
    return int(red), int(green), int(blue)


def _numbers(classes: Tensor) -> Tensor:
    """Classes (H, W) as numbers (1, H, W) from 1 on, and 0 where they are ignored."""
    return torch.where(classes == IGNORED, 0, classes.long() + 1)[None]
