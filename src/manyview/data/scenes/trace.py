"""Ray tracing: which surface each ray of each scene meets first.

Rays are (3, n, rays) tensors. An object is asked only about the rays that pass through the sphere around it; objects of
one shape are asked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from manyview.data.scenes.shapes import SHAPES, Shape
from manyview.data.scenes.stage import OBJECTS, Camera, Objects, Stage
from manyview.data.scenes.vectors import apply, cross, dot, unit

FAR = 20.0  # where the ground has faded into the sky
CENTRE = ((0.5, 0.5),)  # one ray through the middle of each pixel

Near = Callable[[Tensor], Tensor]  # objects -> (objects, rays), the rays that may meet them


class Hits(NamedTuple):
    """Rays that meet objects of one shape: m hits.

    ray    (m,) in n * rays
    thing  (m,) in n * OBJECTS
    t      (m,) distance along the ray
    """

    shape: Shape
    ray: Tensor
    thing: Tensor
    t: Tensor


class Surface(NamedTuple):
    """Where rays first meet objects: m hits, at most one per ray, in the same words.

    point      (3, m) in the world's axes
    direction  (3, m) of the rays
    local      (3, m) the point in the object's axes, in units of length
    normal     (3, m) of length 1, in the world's axes
    """

    ray: Tensor
    thing: Tensor
    t: Tensor
    point: Tensor
    direction: Tensor
    local: Tensor
    normal: Tensor


def camera_rays(camera: Camera, size: int, samples: Sequence[tuple[float, float]] = CENTRE) -> Tensor:
    """Directions of length 1, (3, n, samples * size * size)."""
    grid = torch.arange(size, dtype=torch.float32)
    across = torch.cat([((grid + x) * (2 / size) - 1).repeat(size) for x, _ in samples])
    downward = torch.cat([((grid + y) * (2 / size) - 1).repeat_interleave(size) for _, y in samples])
    right, down, forward = camera.axes
    return unit(forward + right * (across * camera.field) + down * (downward * camera.field))


def project(camera: Camera, point: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Column and row, in pixels from the picture's corner, and the distance ahead."""
    return look_up(camera, point - camera.eye, size)


def look_up(camera: Camera, direction: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where a direction is seen, and its part along the view."""
    right, down, ahead = apply(camera.axes, direction)
    scale = 1 / (ahead * camera.field)
    return (right * scale + 1) * (size / 2), (down * scale + 1) * (size / 2), ahead


def at(values: Tensor, index: Tensor) -> Tensor:
    """The elements (..., m) with these numbers, of numbers, vectors or matrices (..., n, columns)."""
    *axes, rows, columns = values.shape
    return values.reshape(-1, rows * columns).index_select(1, index).view(*axes, len(index))  # quick along axis 1


def hits(objects: Objects, close: Near, origin: Tensor, direction: Tensor) -> Iterator[Hits]:
    """Where rays (3, n, rays) enter objects; origin or direction may be (3, n, 1)."""
    into = objects.turn.transpose(0, 1) / objects.stretch[:, None]  # from the world's axes to a solid's own coordinates
    for number, shape in enumerate(SHAPES.values()):
        things = ((objects.shape == number) & objects.present).view(-1).nonzero()[:, 0]
        if not len(things):
            continue
        near = close(things)
        row, pixel = near.nonzero().unbind(1)
        thing = things.index_select(0, row)
        ray = scene_of(thing) * near.shape[1] + pixel
        own = at(into, thing)
        start = pick(origin, ray, thing) - at(objects.centre, thing)
        t = shape.enter(apply(own, start), apply(own, pick(direction, ray, thing)))
        hit = (t < torch.inf).nonzero()[:, 0]
        yield Hits(shape, ray.index_select(0, hit), thing.index_select(0, hit), t.index_select(0, hit))


def scene_of(thing: Tensor) -> Tensor:
    """The row of the scene that an object is in."""
    return thing >> (OBJECTS.bit_length() - 1)  # much faster than a division


def column_of(thing: Tensor) -> Tensor:
    """The number of an object in its scene."""
    return thing & (OBJECTS - 1)


def pick(vector: Tensor, ray: Tensor, thing: Tensor) -> Tensor:
    """A vector's value at rays; with one column it has the same value at all rays of a scene."""
    return at(vector, scene_of(thing) if vector.shape[2] == 1 else ray)


def first_surface(stage: Stage, direction: Tensor) -> Surface:
    """What the camera's rays meet first."""
    scenes, count = direction.shape[1:]
    close = partial(near_the_view, stage, direction)
    found = list(hits(stage.objects, close, stage.camera.eye, direction))
    depth = torch.full((OBJECTS * scenes * count,), torch.inf, dtype=direction.dtype)
    for m in found:
        depth.index_copy_(0, column_of(m.thing) * (scenes * count) + m.ray, m.t)
    nearest = depth.view(OBJECTS, -1).amin(0)
    parts = [surface(stage, direction, m, nearest) for m in found]
    return Surface(*(torch.cat(each, -1) for each in zip(*parts, strict=True)))


def near_the_view(stage: Stage, direction: Tensor, things: Tensor) -> Tensor:
    """(things, rays): the rays that pass through the sphere around an object."""
    scene = scene_of(things)
    towards = at(stage.objects.centre, things) - at(stage.camera.eye, scene)
    reach = at(stage.objects.reach, things)
    least = (dot(towards, towards) - reach * reach * 1.01).clamp_min(0).sqrt()
    x, y, z = direction.index_select(1, scene).mul_(towards[:, :, None]).unbind(0)
    return x.add_(y).add_(z) > least[:, None]


def surface(stage: Stage, direction: Tensor, m: Hits, nearest: Tensor) -> Surface:
    """The hits that no other object hides."""
    seen = (m.t == nearest.index_select(0, m.ray)).nonzero()[:, 0]
    ray, thing, t = m.ray.index_select(0, seen), m.thing.index_select(0, seen), m.t.index_select(0, seen)
    ahead = at(direction, ray)
    point = at(stage.camera.eye, scene_of(thing)) + ahead * t
    stretch, turn = at(stage.objects.stretch, thing), at(stage.objects.turn, thing)
    local = apply(turn.transpose(0, 1), point - at(stage.objects.centre, thing))
    normal = m.shape.normal(local / stretch)
    return Surface(ray, thing, t, point, ahead, local, unit(apply(turn, normal / stretch)))


def ground_distance(camera: Camera, direction: Tensor) -> Tensor:
    """Along the ray to z = 0; infinite above the horizon and where it is too far to see."""
    falling = direction[2].clamp_max(-1e-6)
    t = -camera.eye[2] / falling
    return torch.where(t < FAR, t, torch.inf)


def in_shadow(objects: Objects, point: Tensor, light: Tensor) -> Tensor:
    """(n, rays): whether an object stands between a point and the light."""
    zero = torch.zeros_like(light[0])
    aside = unit(cross(light, torch.stack([zero, zero + 1, zero])))
    above = cross(aside, light)
    seen = dot(point, aside), dot(point, above)
    dark = torch.zeros(point[0].numel(), dtype=torch.bool)
    for m in hits(objects, partial(near_the_light, objects, seen, (aside, above)), point, light):
        dark.index_fill_(0, m.ray, True)
    return dark.view(point[0].shape)


def near_the_light(
    objects: Objects, seen: tuple[Tensor, Tensor], axes: tuple[Tensor, Tensor], things: Tensor
) -> Tensor:
    """(things, rays): the points that lie behind or before the sphere around an object, as seen from the light."""
    scene = scene_of(things)
    centre, reach = at(objects.centre, things), at(objects.reach, things)
    x, y = (
        part.index_select(0, scene).sub_(dot(centre, at(axis, scene))[:, None])
        for part, axis in zip(seen, axes, strict=True)
    )
    return x.mul_(x).add_(y.mul_(y)) < (reach * reach * 1.01)[:, None]
