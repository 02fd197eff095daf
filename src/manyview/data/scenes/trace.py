"""Ray tracing: which surface each ray of each scene meets first.

Rays are (n, rays) tensors. An object is asked only about the rays that pass through the sphere around it; objects of
one shape are asked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch
from torch import Tensor

from manyview.data.scenes.shapes import SHAPES, Shape
from manyview.data.scenes.stage import OBJECTS, Camera, Objects, Stage
from manyview.data.scenes.vectors import Vector, along, apply, cross, dot, minus, square, three, transposed, unit

FAR = 20.0  # where the ground has faded into the sky
CENTRE = ((0.5, 0.5),)  # one ray through the middle of each pixel
TWO = ((0.25, 0.3), (0.75, 0.7))
FOUR = ((0.375, 0.125), (0.875, 0.375), (0.125, 0.625), (0.625, 0.875))  # no two share a row or a column

Near = Callable[[Tensor], Tensor]  # objects -> (objects, rays), the rays that may meet them


@dataclass(frozen=True)
class Hits:
    """Rays that meet objects of one shape: m hits.

    ray    (m,) in n * rays
    thing  (m,) in n * OBJECTS
    t      (m,) distance along the ray
    """

    shape: Shape
    ray: Tensor
    thing: Tensor
    t: Tensor


@dataclass(frozen=True)
class Surface:
    """Where rays first meet objects: m hits, at most one per ray, in the same words.

    point      (m,) each, in the world's axes
    direction  (m,) each, of the rays
    local      (m,) each: the point in the object's axes, in units of length
    normal     (m,) each: of length 1, in the world's axes
    """

    ray: Tensor
    thing: Tensor
    t: Tensor
    point: Vector
    direction: Vector
    local: Vector
    normal: Vector


def camera_rays(camera: Camera, size: int, samples: Sequence[tuple[float, float]] = CENTRE) -> Vector:
    """Directions of length 1, (n, samples * size * size) each."""
    grid = torch.arange(size, dtype=torch.float32)
    across = torch.cat([((grid + x) * (2 / size) - 1).repeat(size) for x, _ in samples])
    downward = torch.cat([((grid + y) * (2 / size) - 1).repeat_interleave(size) for _, y in samples])
    right, down, forward = camera.axes
    u, v = across * camera.field, downward * camera.field
    return unit(along(along(forward, right, u), down, v))


def project(camera: Camera, point: Vector, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Column and row, in pixels from the picture's corner, and the distance ahead."""
    return look_up(camera, minus(point, camera.eye), size)


def look_up(camera: Camera, direction: Vector, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where a direction is seen, and its part along the view."""
    right, down, ahead = apply(camera.axes, direction)
    scale = 1 / (ahead * camera.field)
    return (right * scale + 1) * (size / 2), (down * scale + 1) * (size / 2), ahead


def at(vector: Vector, index: Tensor) -> Vector:
    """The elements with these numbers, whatever the shape."""
    return three(part.reshape(-1).index_select(0, index) for part in vector)


def hits(objects: Objects, close: Near, origin: Vector, direction: Vector) -> Iterator[Hits]:
    """Where rays (n, rays) enter objects; origin or direction may be (n, 1)."""
    table = own_coordinates(objects)
    for row, shape in enumerate(SHAPES.values()):
        things = ((objects.shape == row) & objects.present).view(-1).nonzero()[:, 0]
        if len(things):
            yield intersect(table, shape, things, close(things), origin, direction)


def intersect(table: Tensor, shape: Shape, things: Tensor, close: Tensor, origin: Vector, direction: Vector) -> Hits:
    row, pixel = close.nonzero().unbind(1)
    thing = things.index_select(0, row)
    ray = scene_of(thing) * close.shape[1] + pixel
    entries = table.index_select(1, thing).unbind(0)
    into, middle = square(entries[:9]), three(entries[9:])
    start = minus(pick(origin, ray, thing), middle)
    t = shape.enter(apply(into, start), apply(into, pick(direction, ray, thing)))
    hit = (t < torch.inf).nonzero()[:, 0]
    return Hits(shape, ray.index_select(0, hit), thing.index_select(0, hit), t.index_select(0, hit))


def scene_of(thing: Tensor) -> Tensor:
    """The row of the scene that an object is in."""
    return thing >> (OBJECTS.bit_length() - 1)  # much faster than a division


def column_of(thing: Tensor) -> Tensor:
    """The number of an object in its scene."""
    return thing & (OBJECTS - 1)


def pick(vector: Vector, ray: Tensor, thing: Tensor) -> Vector:
    """A vector's value at rays; with one column it has the same value at all rays of a scene."""
    if vector[0].shape[1] == 1:
        return at(vector, scene_of(thing))
    return at(vector, ray)


def own_coordinates(objects: Objects) -> Tensor:
    """(12, n * OBJECTS): the matrix from the world's axes to a solid's own coordinates, and its middle."""
    turn = transposed(objects.turn)
    parts = [entry / stretch for line, stretch in zip(turn, objects.stretch, strict=True) for entry in line]
    return torch.stack([part.view(-1) for part in (*parts, *objects.centre)])


def first_surface(stage: Stage, direction: Vector) -> Surface:
    """What the camera's rays meet first."""
    scenes, count = direction[0].shape
    close = partial(near_the_view, stage, direction)
    found = list(hits(stage.objects, close, stage.camera.eye, direction))
    depth = torch.full((OBJECTS * scenes * count,), torch.inf, dtype=direction[0].dtype)
    for m in found:
        depth.index_copy_(0, column_of(m.thing) * (scenes * count) + m.ray, m.t)
    nearest = depth.view(OBJECTS, -1).amin(0)
    return joined([surface(stage, direction, m, nearest) for m in found])


def near_the_view(stage: Stage, direction: Vector, things: Tensor) -> Tensor:
    """(things, rays): the rays that pass through the sphere around an object."""
    scene = scene_of(things)
    towards = minus(at(stage.objects.centre, things), at(stage.camera.eye, scene))
    reach = stage.objects.reach.view(-1)[things]
    least = (dot(towards, towards) - reach * reach * 1.01).clamp_min(0).sqrt()
    x, y, z = (part.index_select(0, scene) for part in direction)
    ahead = x.mul_(towards[0][:, None]).add_(y.mul_(towards[1][:, None])).add_(z.mul_(towards[2][:, None]))
    return ahead > least[:, None]


def surface(stage: Stage, direction: Vector, m: Hits, nearest: Tensor) -> Surface:
    """The hits that no other object hides."""
    seen = (m.t == nearest.index_select(0, m.ray)).nonzero()[:, 0]
    ray, thing, t = m.ray.index_select(0, seen), m.thing.index_select(0, seen), m.t.index_select(0, seen)
    objects, scene = stage.objects, scene_of(thing)
    ahead = at(direction, ray)
    point = along(at(stage.camera.eye, scene), ahead, t)
    table = torch.stack([part.view(-1) for part in (*objects.stretch, *chain(*objects.turn))]).index_select(1, thing)
    a, b, c, *entries = table.unbind(0)
    turn = square(entries)
    local = apply(transposed(turn), minus(point, at(objects.centre, thing)))
    x, y, z = m.shape.normal((local[0] / a, local[1] / b, local[2] / c))
    return Surface(ray, thing, t, point, ahead, local, unit(apply(turn, (x / a, y / b, z / c))))


def joined(parts: list[Surface]) -> Surface:
    return Surface(
        torch.cat([p.ray for p in parts]),
        torch.cat([p.thing for p in parts]),
        torch.cat([p.t for p in parts]),
        stacked([p.point for p in parts]),
        stacked([p.direction for p in parts]),
        stacked([p.local for p in parts]),
        stacked([p.normal for p in parts]),
    )


def stacked(vectors: list[Vector]) -> Vector:
    return three(torch.cat(parts) for parts in zip(*vectors, strict=True))


def ground_distance(camera: Camera, direction: Vector) -> Tensor:
    """Along the ray to z = 0; infinite above the horizon and where it is too far to see."""
    falling = direction[2].clamp_max(-1e-6)
    t = -camera.eye[2] / falling
    return torch.where(t < FAR, t, torch.inf)


def in_shadow(objects: Objects, point: Vector, light: Vector) -> Tensor:
    """(n, rays): whether an object stands between a point and the light."""
    zero = torch.zeros_like(light[0])
    aside = unit(cross(light, (zero, zero + 1, zero)))
    above = cross(aside, light)
    seen = dot(point, aside), dot(point, above)
    dark = torch.zeros(point[0].numel(), dtype=torch.bool)
    for m in hits(objects, partial(near_the_light, objects, seen, (aside, above)), point, light):
        dark.index_fill_(0, m.ray, True)
    return dark.view(point[0].shape)


def near_the_light(
    objects: Objects, seen: tuple[Tensor, Tensor], axes: tuple[Vector, Vector], things: Tensor
) -> Tensor:
    """(things, rays): the points that lie behind or before the sphere around an object, as seen from the light."""
    scene = scene_of(things)
    centre, reach = at(objects.centre, things), objects.reach.view(-1)[things]
    x, y = (part.index_select(0, scene) for part in seen)
    x.sub_(dot(centre, at(axes[0], scene))[:, None])
    y.sub_(dot(centre, at(axes[1], scene))[:, None])
    return x.mul_(x).add_(y.mul_(y)) < (reach * reach * 1.01)[:, None]
