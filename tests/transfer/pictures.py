"""Pictures with masks: blocks of colour, whose class can be told by their colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COLOURS = ((200, 30, 30), (30, 200, 30), (30, 30, 200))
Array = np.ndarray[Any, Any]


def blocks(number: int, side: int = 32) -> Array:
    """(side, side) of the classes 0 to 2."""
    draw = np.random.default_rng(number)
    return np.kron(draw.integers(0, 3, (4, 4)), np.ones((side // 4, side // 4))).astype(np.uint8)


def pair(
    pictures: Path, masks: Path, count: int, *, colours: bool = False, palette: bool = False, first: int = 0
) -> None:
    """Writes pictures and their masks, as numbers, colours or a palette, under the same names."""
    for folder in (pictures, masks):
        folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        classes = blocks(number)
        painted = np.array(COLOURS, dtype=np.uint8)[classes]
        Image.fromarray(painted).save(pictures / f"{number}.png")
        mask = Image.fromarray(painted if colours else classes)
        if palette:
            mask.putpalette([value for colour in COLOURS for value in colour])
        mask.save(masks / f"{number}.png")


def folder(root: Path, count: int = 8, **kind: Any) -> Path:
    """`images/` and `masks/` below a folder that also tells the splits."""
    for place, split in enumerate(("train", "test")):
        pair(root / split / "images", root / split / "masks", count, first=100 * place, **kind)
    return root
