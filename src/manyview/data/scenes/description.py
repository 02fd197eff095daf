"""What a scene shows that is not a raster: boxes, keypoints and a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from manyview.data.scenes.captions import captions
from manyview.data.scenes.render import geometry, instance
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import OBJECTS, Stage
from manyview.data.scenes.trace import hits, project
from manyview.data.scenes.vectors import Vector, apply, minus, square, three, unit


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
        caption=captions(scene)[0],
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


def keypoints_in_world(scene: Stage, share: float = 1.0) -> Vector:
    """(1, OBJECTS * 6) each, at a share of their way from the object's middle."""
    objects = scene.objects
    table = torch.tensor([shape.keypoints for shape in SHAPES.values()])[objects.shape[0]] * share
    x, y, z = (table[..., axis] * objects.stretch[axis][0, :, None] for axis in range(3))
    offset = apply(square(entry[0, :, None] for entry in chain(*objects.turn)), (x, y, z))
    return three((o + c[0, :, None]).reshape(1, -1) for o, c in zip(offset, objects.centre, strict=True))


def in_sight(scene: Stage) -> Tensor:
    """(1, OBJECTS * 6): no object stands between a keypoint, or a point just outside of it, and the camera."""
    outside = keypoints_in_world(scene, 1.02)
    back = unit(minus(scene.camera.eye, outside))
    free = torch.ones(outside[0].shape, dtype=torch.bool)
    for hit in hits(scene.objects, lambda things: free.new_ones(len(things), free.numel()), outside, back):
        free.index_fill_(1, hit.ray, False)
    return free
