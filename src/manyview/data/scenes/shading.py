"""What colour the camera sees: light, shadow, patterns, reflections and haze."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from manyview.data.scenes.stage import OBJECTS, Objects, Paint, Stage, Surroundings
from manyview.data.scenes.trace import (
    FAR,
    FOUR,
    TWO,
    Surface,
    camera_rays,
    first_surface,
    ground_distance,
    in_shadow,
    scene_of,
)
from manyview.data.scenes.vectors import Vector, along, dot, minus, mix, plus, three, times


class Lighting(NamedTuple):
    """What lights a point, one value per point each."""

    light: Vector
    brightness: Vector
    horizon: Vector
    zenith: Vector
    ground: Vector
    ambient: Tensor


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


def shade(stage: Stage, direction: Vector) -> Vector:
    """Linear light in [0, 1], (n, rays) each."""
    surface = first_surface(stage, direction)
    ground = ground_distance(stage.camera, direction)
    floor = along(stage.camera.eye, direction, ground.clamp_max(FAR))
    dark = shadows(stage, surface, floor, ground)
    light = backdrop(stage, direction, ground, floor, dark)
    seen = shade_objects(stage, surface, dark.view(-1).index_select(0, surface.ray))
    for plane, value in zip(light, seen, strict=True):
        plane.view(-1).index_copy_(0, surface.ray, value)
    return three(exposed(plane) for plane in light)


def exposed(light: Tensor) -> Tensor:
    """Light in [0, 1]; the brightest is compressed, so that white things keep their shading."""
    return (light / (0.75 + 0.5 * light)).clamp(0, 1)


def shadows(stage: Stage, surface: Surface, floor: Vector, ground: Tensor) -> Tensor:
    """(n, rays): surfaces that the light does not reach. They start a little outside, not to shade themselves."""
    height = torch.where(ground < torch.inf, 0.0, -AWAY)
    x, y, z = floor[0].clone(), floor[1].clone(), height
    outside = plus(surface.point, times(surface.normal, 0.02))
    for plane, value in zip((x, y, z), outside, strict=True):
        plane.view(-1).index_copy_(0, surface.ray, value)
    return in_shadow(stage.objects, (x, y, z), stage.surroundings.light)


def pattern(kind: Tensor, waves: Vector) -> Tensor:
    """The share of the second colour, 0 or 1: plain, striped, checked or spotted by the waves."""
    x, y, z = (w - w.floor() for w in waves)
    striped = z < 0.5
    checked = (x < 0.5) ^ (y < 0.5) ^ striped
    a, b, c = x - 0.5, y - 0.5, z - 0.5
    spotted = a * a + b * b + c * c < 0.15
    chosen = ((kind == 1) & striped) | ((kind == 2) & checked) | ((kind == 3) & spotted)
    return chosen.float()


def sky(surroundings: Surroundings | Lighting, direction: Vector) -> Vector:
    share = (direction[2] * 2).clamp(0, 1)
    return mix(surroundings.horizon, surroundings.zenith, share)


def backdrop(stage: Stage, direction: Vector, ground: Tensor, floor: Vector, dark: Tensor) -> Vector:
    """Ground and sky at every ray."""
    around = stage.surroundings
    lit = around.light[2] * ~dark
    ambient = around.ambient * openness(stage.objects, floor)
    colour = painted_ground(around.ground, floor)
    haze = (ground.clamp_max(FAR) / FAR).square()
    above = sky(around, direction)
    out = []
    for paint, power, air, up in zip(colour, around.brightness, around.horizon, above, strict=True):
        seen = paint * (power * lit + ambient)
        out.append(torch.where(ground < torch.inf, seen + (air - seen) * haze, up))
    return out[0], out[1], out[2]


def painted_ground(paint: Paint, floor: Vector) -> Vector:
    x = floor[0] * paint.waves[0] + floor[1] * (paint.phase[2] - 0.5) + paint.phase[0]
    y = floor[1] * paint.waves[1] - floor[0] * (paint.phase[2] - 0.5) + paint.phase[1]
    return mix(paint.colour, paint.second, pattern(paint.pattern, (x, torch.full_like(x, 0.5), y)))


def openness(objects: Objects, floor: Vector) -> Tensor:
    """How much of the sky the ground sees past the objects, each taken for a ball."""
    seen = torch.ones_like(floor[0])
    for column in range(OBJECTS):
        x, y, z = (part[:, column : column + 1] for part in objects.centre)
        radius = objects.reach[:, column : column + 1] * 0.8 * objects.present[:, column : column + 1]
        dx, dy = floor[0] - x, floor[1] - y
        square = dx * dx + dy * dy + z * z
        seen = seen * (1 - (z * radius * radius / (square * square.sqrt())).clamp_max(0.85))
    return seen


def lighting_at(around: Surroundings, surface: Surface) -> Lighting:
    """The surroundings of the scene that each hit is in."""
    parts = (*around.light, *around.brightness, *around.horizon, *around.zenith, *around.ground.colour, around.ambient)
    scene = scene_of(surface.thing)
    row = torch.stack([part.view(-1) for part in parts]).index_select(1, scene).unbind(0)
    light, brightness, horizon, zenith, ground = (three(row[i : i + 3]) for i in range(0, 15, 3))
    return Lighting(light, brightness, horizon, zenith, ground, row[15])


def shade_objects(stage: Stage, surface: Surface, dark: Tensor) -> Vector:
    around, objects = lighting_at(stage.surroundings, surface), stage.objects
    paint = painted_object(objects.paint, surface)
    material = objects.material.view(-1).index_select(0, surface.thing)
    lit = dot(surface.normal, around.light).clamp_min(0) * ~dark
    near_ground = (surface.point[2] * 1.5).clamp(0, 1) * 0.5 + 0.5
    ambient = around.ambient * (0.65 + 0.35 * surface.normal[2]) * near_ground
    mirrored = minus(surface.direction, times(surface.normal, 2 * dot(surface.normal, surface.direction)))
    shine = highlight(mirrored, around.light, material) * (lit > 0)
    reflected = mix(around.ground, sky(around, mirrored), (mirrored[2] * 5 + 0.5).clamp(0, 1))
    metal = (material == 2).float() * 0.75
    out = []
    for own, bright, image in zip(paint, around.brightness, reflected, strict=True):
        matte = own * (bright * lit + ambient)
        out.append(matte + (own * image * near_ground * 1.3 - matte) * metal + bright * shine)
    return out[0], out[1], out[2]


def painted_object(paint: Paint, surface: Surface) -> Vector:
    parts = (*paint.colour, *paint.second, *paint.waves, *paint.phase)
    table = torch.stack([part.view(-1) for part in parts]).index_select(1, surface.thing).unbind(0)
    colour, second, often, phase = (three(table[i : i + 3]) for i in range(0, 12, 3))
    x, y, z = (p * w + s for p, w, s in zip(surface.local, often, phase, strict=True))
    share = pattern(paint.pattern.view(-1).index_select(0, surface.thing), (x, y, z))
    return mix(colour, second, share)


def highlight(mirrored: Vector, light: Vector, material: Tensor) -> Tensor:
    """The light's own image: a small spot on plastic, a wide one on metal."""
    facing = dot(mirrored, light).clamp_min(0)
    wide = facing.square().square().square()
    small = wide.square().square()
    return (material == 1) * (small * 0.6) + (material == 2) * (wide * 0.35)
