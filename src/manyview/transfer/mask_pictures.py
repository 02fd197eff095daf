"""Pictures of a segmentation: what the encoder saw, the right mask, and below it the predicted one."""

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

SHOWN = 8  # pictures
SIDE = 128  # pixels of each
GAP = 4


class Segmented(NamedTuple):
    """A picture (C, H, W) as an encoder sees it, its classes (H, W), and the predicted ones."""

    picture: Tensor
    right: Tensor
    predicted: Tensor


def save_mask_pictures(samples: Sequence[Segmented], path: Path) -> None:
    """Writes one PNG: a column a picture. Each class has a colour of its own; ignored pixels are dark."""
    rows = [
        visible([each.picture for each in samples]),
        visible([_numbers(each.right) for each in samples], "mask"),
        visible([_numbers(each.predicted) for each in samples], "mask"),
    ]
    step = SIDE + GAP
    sheet = Image.new("RGB", (step * len(samples) - GAP, step * len(rows) - GAP), "white")
    for y, row in enumerate(rows):
        for x, tile in enumerate(row):
            kind = Image.Resampling.NEAREST if y else Image.Resampling.BICUBIC
            sheet.paste(tile.resize((SIDE, SIDE), kind), (step * x, step * y))
    with atomic_write(path) as draft:
        sheet.save(draft, format="PNG")


def _numbers(classes: Tensor) -> Tensor:
    """Classes (H, W) as numbers (1, H, W) from 1 on, and 0 where they are ignored."""
    return torch.where(classes == IGNORED, 0, classes.long() + 1)[None]
