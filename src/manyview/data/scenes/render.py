"""The modalities of a scene: a picture, and what is exact about it at the middle of each pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.data.scenes.shading import picture
from manyview.data.scenes.stage import Camera, Stage, moved
from manyview.data.scenes.trace import (
    FAR,
    Surface,
    at,
    camera_rays,
    column_of,
    first_surface,
    ground_distance,
    look_up,
    project,
    scene_of,
)
from manyview.data.scenes.vectors import apply

NOTHING, GROUND = 0, 1  # in the semantic mask; the shapes follow


@dataclass(frozen=True)
class Geometry:
    """What the rays through the pixels' middles meet; shared by all exact modalities."""

    stage: Stage
    size: int
    direction: Tensor  # (3, n, size * size)
    surface: Surface
    ground: Tensor  # (n, size * size), distance to the ground, infinite in the sky


def geometry(stage: Stage, size: int) -> Geometry:
    direction = camera_rays(stage.camera, size)
    return Geometry(stage, size, direction, first_surface(stage, direction), ground_distance(stage.camera, direction))


def render(stage: Stage, size: int, modalities: Sequence[str]) -> dict[str, Tensor]:
    """The named modalities, (n, C, size, size) each; only what they need is computed."""
    exact = geometry(stage, size) if set(modalities) & set(EXACT) else None
    out: dict[str, Tensor] = {}
    for name in modalities:
        if exact is not None and name in EXACT:
            out[name] = EXACT[name](exact)
        else:
            out[name] = picture(moved(stage) if name == "rgb2" else stage, size)
    return out


def depth(g: Geometry) -> Tensor:
    """(n, 1, H, W) float32: distance from the camera along the ray; FAR in the sky."""
    return planes(g, [over(g, g.ground.clamp_max(FAR), g.surface.t)])


def normals(g: Geometry) -> Tensor:
    """(n, 3, H, W) float32 of length 1, in the camera's axes right, down, forward; 0 in the sky."""
    upright = (g.ground < torch.inf).float()
    axes = g.stage.camera.axes
    own = apply(at(axes, scene_of(g.surface.thing)), g.surface.normal)
    return planes(g, [over(g, axis[2] * upright, value) for axis, value in zip(axes, own, strict=True)])


def semantic(g: Geometry) -> Tensor:
    """(n, 1, H, W) uint8: 0 sky, 1 ground, 2 + class for objects."""
    shape = at(g.stage.objects.shape, g.surface.thing)
    ground = torch.where(g.ground < torch.inf, GROUND, NOTHING).to(torch.uint8)
    return planes(g, [over(g, ground, (shape + GROUND + 1).to(torch.uint8))])


def instance(g: Geometry) -> Tensor:
    """(n, 1, H, W) uint8: 0 no object, 1 the main object, 2 and more the others."""
    nothing = torch.zeros(g.ground.shape, dtype=torch.uint8)
    return planes(g, [over(g, nothing, (column_of(g.surface.thing) + 1).to(torch.uint8))])


def flow(g: Geometry) -> Tensor:
    """(n, 2, H, W) float32: how many pixels to the right and down what is seen here has moved in the second frame."""
    before, after = g.stage.camera, g.stage.motion.camera
    floor = project(after, before.eye + g.direction * g.ground.clamp_max(FAR), g.size)
    sky = look_up(after, g.direction, g.size)
    objects = project_moved(g)
    middle = torch.arange(g.size) + 0.5
    start = (middle.repeat(g.size), middle.repeat_interleave(g.size))
    out = []
    for here, far, near, own in zip(start, sky, floor, objects, strict=False):
        still = torch.where(g.ground < torch.inf, near, far)
        out.append(over(g, still, own).view_as(still) - here)
    return planes(g, out)


def project_moved(g: Geometry) -> tuple[Tensor, Tensor]:
    """Where the second camera sees the objects' points after their motion, in pixels."""
    objects, motion, thing = g.stage.objects, g.stage.motion, g.surface.thing
    centre = at(objects.centre, thing)
    point = apply(at(motion.spin, thing), g.surface.point - centre) + centre + at(motion.shift, thing)
    parts = (motion.camera.eye, motion.camera.axes, motion.camera.field)
    return project(Camera(*(at(part, scene_of(thing)) for part in parts)), point, g.size)[:2]


def over(g: Geometry, behind: Tensor, objects: Tensor) -> Tensor:
    """Objects' values in front of values (n, size * size)."""
    return behind.contiguous().view(-1).index_copy(0, g.surface.ray, objects)


def planes(g: Geometry, channels: list[Tensor]) -> Tensor:
    return torch.stack([channel.reshape(-1, g.size, g.size) for channel in channels], 1)


EXACT: dict[str, Callable[[Geometry], Tensor]] = {
    "depth": depth,
    "normals": normals,
    "semantic": semantic,
    "instance": instance,
    "flow": flow,
}
PICTURES = ("image", "rgb", "rgb2")
