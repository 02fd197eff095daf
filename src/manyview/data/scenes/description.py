"""What a scene shows that is not a raster: boxes, keypoints and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.data.scenes.render import geometry, instance
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import MATERIALS, OBJECTS, PALETTE, PATTERNS, Stage
from manyview.data.scenes.trace import hits, project
from manyview.data.scenes.vectors import apply, unit

REFERENCE = 64  # pixels: what is visible does not depend on the size that is asked for
MIN_SHARE = 0.003  # of the picture, below which nobody would mention an object
LARGE_SHARE, SMALL_SHARE = 0.2, 0.07  # of the picture


@dataclass(frozen=True, eq=False)
class Description:
    """m visible objects of a scene, the main one first.

    caption    an English sentence
    shapes     the objects' class names
    instances  (m,) their values in the instance mask
    boxes      (m, 4) float32: left, top, right, bottom edge of their visible pixels
    keypoints  (m, 6, 2) float32: column and row of six points fixed to the object, in pixels from the corner
    visible    (m, 6) bool: the keypoint is in the picture and nothing hides it
    """

    caption: str
    shapes: tuple[str, ...]
    instances: Tensor
    boxes: Tensor
    keypoints: Tensor
    visible: Tensor


def describe(scene: Stage, size: int) -> Description:
    mask = instance(geometry(scene, size))[0, 0]
    seen = [number for number in range(OBJECTS) if (mask == number + 1).any()]
    points, visible = keypoints(scene, size)
    names = tuple(SHAPES)
    return Description(
        caption=caption(scene),
        shapes=tuple(names[int(scene.objects.shape[0, number])] for number in seen),
        instances=torch.tensor(seen, dtype=torch.long) + 1,
        boxes=torch.stack([box(mask == number + 1) for number in seen]) if seen else torch.zeros(0, 4),
        keypoints=points[seen],
        visible=visible[seen],
    )


def box(mask: Tensor) -> Tensor:
    """The tight box (4,) around the pixels of a mask, by their outer edges."""
    rows, columns = mask.any(1).nonzero()[:, 0], mask.any(0).nonzero()[:, 0]
    return torch.stack([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()


def keypoints(scene: Stage, size: int) -> tuple[Tensor, Tensor]:
    """(OBJECTS, 6, 2) and (OBJECTS, 6): where the keypoints of one scene's objects are, and whether they are seen."""
    point = keypoints_in_world(scene)
    column, row, ahead = project(scene.camera, point, size)
    seen = in_sight(scene) & (column >= 0) & (column < size) & (row >= 0) & (row < size) & (ahead > 0)
    return torch.stack([column, row], -1).view(OBJECTS, 6, 2), seen.view(OBJECTS, 6)


def keypoints_in_world(scene: Stage, share: float = 1.0) -> Tensor:
    """(3, 1, OBJECTS * 6), at a share of their way from the object's middle."""
    objects = scene.objects
    table = torch.tensor([shape.keypoints for shape in SHAPES.values()])[objects.shape[0]] * share
    own = table.movedim(-1, 0) * objects.stretch[:, 0, :, None]
    return (apply(objects.turn[:, :, 0, :, None], own) + objects.centre[:, 0, :, None]).view(3, 1, -1)


def in_sight(scene: Stage) -> Tensor:
    """(1, OBJECTS * 6): no object stands between a keypoint, or a point just outside of it, and the camera."""
    outside = keypoints_in_world(scene, 1.02)
    back = unit(scene.camera.eye - outside)
    free = torch.ones(outside[0].shape, dtype=torch.bool)
    for hit in hits(scene.objects, lambda things: free.new_ones(len(things), free.numel()), outside, back):
        free.index_fill_(1, hit.ray, False)
    return free


def caption(scene: Stage) -> str:
    """A sentence about one scene, as "a large red striped torus left of a small blue cone on a grey floor"."""
    mask = instance(geometry(scene, REFERENCE))[0, 0]
    shares = [float((mask == number + 1).double().mean()) for number in range(OBJECTS)]
    others = [number for number in range(1, OBJECTS) if shares[number] > MIN_SHARE]
    relations = [f"{relation(mask, n)} {with_article(noun(scene, n, shares[n]))}" for n in others]
    ground = scene.surroundings.ground
    floor = words(list(PALETTE)[int(ground.name)], PATTERNS[int(ground.pattern)], "floor")
    beside = " and ".join(relations)
    return words(with_article(noun(scene, 0, shares[0])), beside, "on", with_article(floor))


def noun(scene: Stage, number: int, share: float) -> str:
    things = scene.objects
    size = "large" if share > LARGE_SHARE else "small" if share < SMALL_SHARE else ""
    material = MATERIALS[int(things.material[0, number])]
    pattern = PATTERNS[int(things.paint.pattern[0, number])]
    colour = list(PALETTE)[int(things.paint.name[0, number])]
    return words(size, material, colour, pattern, list(SHAPES)[int(things.shape[0, number])])


def words(*parts: str) -> str:
    """Joins what is worth saying."""
    return " ".join(part for part in parts if part not in ("", "matte", "plain"))


def with_article(words: str) -> str:
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def relation(mask: Tensor, number: int) -> str:
    """Where the main object is in the picture, seen from another one; the others never stand in front."""
    column = torch.arange(mask.shape[1], dtype=torch.float64)
    main, other = (float((column * (mask == n + 1)).sum() / (mask == n + 1).sum()) for n in (0, number))
    if abs(main - other) < 0.12 * mask.shape[1]:
        return "in front of"
    return "left of" if main < other else "right of"
