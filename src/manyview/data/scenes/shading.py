"""What colour the camera sees: light, shadow, patterns, reflections and haze."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyview.data.scenes.stage import OBJECTS, Objects, Paint, Stage, Surroundings
from manyview.data.scenes.trace import (
    FAR,
    Surface,
    at,
    camera_rays,
    first_surface,
    ground_distance,
    in_shadow,
    scene_of,
)
from manyview.data.scenes.vectors import dot, mix


class Lighting(NamedTuple):
    """What lights m points, (..., m) each."""

    light: Tensor
    brightness: Tensor
    horizon: Tensor
    zenith: Tensor
    ground: Tensor
    ambient: Tensor


TWO = ((0.25, 0.3), (0.75, 0.7))
FOUR = ((0.375, 0.125), (0.875, 0.375), (0.125, 0.625), (0.625, 0.875))  # no two share a row or a column
AWAY = 1e4  # where rays without a surface are put, so that nothing shades them


def picture(stage: Stage, size: int) -> Tensor:
    """(n, 3, size, size) uint8, the mean of some rays per pixel."""
    samples = rays_per_pixel(size)
    light = shade(stage, camera_rays(stage.camera, size, samples))
    channels = [average(plane.view(-1, len(samples), size, size)) for plane in light]
    return (torch.stack(channels, 1).sqrt() * 255 + 0.5).to(torch.uint8)


def rays_per_pixel(size: int) -> tuple[tuple[float, float], ...]:
    """Small pictures are made by the thousand, large ones are looked at."""
    return TWO if size < 48 else FOUR


def average(rays: Tensor) -> Tensor:
    """The mean over axis 1, in a fixed order."""
    first, *others = rays.unbind(1)
    for ray in others:
        first = first + ray
    return first / rays.shape[1]


def shade(stage: Stage, direction: Tensor) -> Tensor:
    """Linear light in [0, 1], (3, n, rays)."""
    surface = first_surface(stage, direction)
    ground = ground_distance(stage.camera, direction)
    floor = stage.camera.eye + direction * ground.clamp_max(FAR)
    dark = shadows(stage, surface, floor, ground)
    light = backdrop(stage, direction, ground, floor, dark)
    seen = shade_objects(stage, surface, dark.view(-1).index_select(0, surface.ray))
    light.view(3, -1).index_copy_(1, surface.ray, seen)
    return exposed(light)


def exposed(light: Tensor) -> Tensor:
    """Light in [0, 1]; the brightest is compressed, so that white things keep their shading."""
    return (light / (0.75 + 0.5 * light)).clamp(0, 1)


def shadows(stage: Stage, surface: Surface, floor: Tensor, ground: Tensor) -> Tensor:
    """(n, rays): surfaces that the light does not reach. They start a little outside, not to shade themselves."""
    point = torch.stack([floor[0], floor[1], torch.where(ground < torch.inf, 0.0, -AWAY)])
    point.view(3, -1).index_copy_(1, surface.ray, surface.point + surface.normal * 0.02)
    return in_shadow(stage.objects, point, stage.surroundings.light)


def pattern(kind: Tensor, waves: Tensor) -> Tensor:
    """The share of the second colour, 0 or 1: plain, striped, checked or spotted by the waves."""
    x, y, z = (waves - waves.floor()).unbind(0)
    striped = z < 0.5
    checked = (x < 0.5) ^ (y < 0.5) ^ striped
    a, b, c = x - 0.5, y - 0.5, z - 0.5
    spotted = a * a + b * b + c * c < 0.15
    chosen = ((kind == 1) & striped) | ((kind == 2) & checked) | ((kind == 3) & spotted)
    return chosen.float()


def sky(surroundings: Surroundings | Lighting, direction: Tensor) -> Tensor:
    share = (direction[2] * 2).clamp(0, 1)
    return mix(surroundings.horizon, surroundings.zenith, share)


def backdrop(stage: Stage, direction: Tensor, ground: Tensor, floor: Tensor, dark: Tensor) -> Tensor:
    """Ground and sky at every ray."""
    around = stage.surroundings
    lit = around.light[2] * ~dark
    ambient = around.ambient * openness(stage.objects, floor)
    haze = (ground.clamp_max(FAR) / FAR).square()
    seen = painted_ground(around.ground, floor) * (around.brightness * lit + ambient)
    return torch.where(ground < torch.inf, mix(seen, around.horizon, haze), sky(around, direction))


def painted_ground(paint: Paint, floor: Tensor) -> Tensor:
    x = floor[0] * paint.waves[0] + floor[1] * (paint.phase[2] - 0.5) + paint.phase[0]
    y = floor[1] * paint.waves[1] - floor[0] * (paint.phase[2] - 0.5) + paint.phase[1]
    return mix(paint.colour, paint.second, pattern(paint.pattern, torch.stack([x, torch.full_like(x, 0.5), y])))


def openness(objects: Objects, floor: Tensor) -> Tensor:
    """How much of the sky the ground sees past the objects, each taken for a ball."""
    seen = torch.ones_like(floor[0])
    for column in range(OBJECTS):
        x, y, z = objects.centre[:, :, column : column + 1]
        radius = objects.reach[:, column : column + 1] * 0.8 * objects.present[:, column : column + 1]
        dx, dy = floor[0] - x, floor[1] - y
        square = dx * dx + dy * dy + z * z
        seen = seen * (1 - (z * radius * radius / (square * square.sqrt())).clamp_max(0.85))
    return seen


def lighting_at(around: Surroundings, surface: Surface) -> Lighting:
    """The surroundings of the scene that each hit is in."""
    parts = (around.light, around.brightness, around.horizon, around.zenith, around.ground.colour, around.ambient)
    return Lighting(*(at(part, scene_of(surface.thing)) for part in parts))


def shade_objects(stage: Stage, surface: Surface, dark: Tensor) -> Tensor:
    around, objects = lighting_at(stage.surroundings, surface), stage.objects
    paint = painted_object(objects.paint, surface)
    material = at(objects.material, surface.thing)
    lit = dot(surface.normal, around.light).clamp_min(0) * ~dark
    near_ground = (surface.point[2] * 1.5).clamp(0, 1) * 0.5 + 0.5
    ambient = around.ambient * (0.65 + 0.35 * surface.normal[2]) * near_ground
    mirrored = surface.direction - surface.normal * (2 * dot(surface.normal, surface.direction))
    shine = highlight(mirrored, around.light, material) * (lit > 0)
    reflected = mix(around.ground, sky(around, mirrored), (mirrored[2] * 5 + 0.5).clamp(0, 1))
    metal = (material == 2).float() * 0.75
    matte = paint * (around.brightness * lit + ambient)
    return mix(matte, paint * reflected * near_ground * 1.3, metal) + around.brightness * shine


def painted_object(paint: Paint, surface: Surface) -> Tensor:
    parts = (paint.colour, paint.second, paint.waves, paint.phase, paint.pattern)
    colour, second, often, phase, kind = (at(part, surface.thing) for part in parts)
    return mix(colour, second, pattern(kind, surface.local * often + phase))


def highlight(mirrored: Tensor, light: Tensor, material: Tensor) -> Tensor:
    """The light's own image: a small spot on plastic, a wide one on metal."""
    facing = dot(mirrored, light).clamp_min(0)
    wide = facing.square().square().square()
    small = wide.square().square()
    return (material == 1) * (small * 0.6) + (material == 2) * (wide * 0.35)
