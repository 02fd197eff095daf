"""English sentences about what is visible in scenes."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.data.scenes.render import geometry, instance
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import MATERIALS, OBJECTS, PALETTE, PATTERNS, Stage

REFERENCE = 64  # pixels: what is visible does not depend on the size that is asked for
MIN_SHARE = 0.003  # of the picture, below which nobody would mention an object
LARGE_SHARE, SMALL_SHARE = 0.2, 0.07  # of the picture


def captions(stage: Stage) -> list[str]:
    """One sentence per scene, as in "a large red striped torus left of a small blue cone on a grey floor"."""
    mask = instance(geometry(stage, REFERENCE))[:, 0]
    return [caption(stage, row, mask[row]) for row in range(len(mask))]


def caption(stage: Stage, row: int, mask: Tensor) -> str:
    shares = [float((mask == number + 1).double().mean()) for number in range(OBJECTS)]
    others = [number for number in range(1, OBJECTS) if shares[number] > MIN_SHARE]
    words = with_article(noun(stage, row, 0, shares[0]))
    relations = [f"{relation(mask, n)} {with_article(noun(stage, row, n, shares[n]))}" for n in others]
    beside = "".join(f" {text}" if first == 0 else f" and {text}" for first, text in enumerate(relations))
    return f"{words}{beside} on {with_article(floor(stage, row))}"


def noun(stage: Stage, row: int, number: int, share: float) -> str:
    things = stage.objects
    size = "large" if share > LARGE_SHARE else "small" if share < SMALL_SHARE else ""
    material = MATERIALS[int(things.material[row, number])].replace("matte", "")
    pattern = PATTERNS[int(things.paint.pattern[row, number])].replace("plain", "")
    colour = list(PALETTE)[int(things.paint.name[row, number])]
    shape = list(SHAPES)[int(things.shape[row, number])]
    return " ".join(word for word in (size, material, colour, pattern, shape) if word)


def floor(stage: Stage, row: int) -> str:
    paint = stage.surroundings.ground
    pattern = PATTERNS[int(paint.pattern[row, 0])].replace("plain", "")
    words = (list(PALETTE)[int(paint.name[row, 0])], pattern, "floor")
    return " ".join(word for word in words if word)


def with_article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def relation(mask: Tensor, number: int) -> str:
    """Where the main object is in the picture, seen from another one; the others never stand in front."""
    column = torch.arange(mask.shape[1], dtype=torch.float64)
    main, other = (float((column * (mask == n + 1)).sum() / (mask == n + 1).sum()) for n in (0, number))
    if abs(main - other) < 0.12 * mask.shape[1]:
        return "in front of"
    return "left of" if main < other else "right of"
