"""What is drawn by lot for each scene: objects, ground, sky, light, camera, and how they move to the second frame.

Lengths are in units of about the main object's radius, z is up, the ground is z = 0. The camera stands in the direction
of -y. Every number is a function of the scene's key and a topic, so a new topic leaves the old scenes as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from manyview.core.rng import key, uniform
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.vectors import apply, cross, mix, product, unit

OBJECTS = 4  # at most, the main one and others; a power of two

PALETTE: dict[str, tuple[float, float, float]] = {  # linear light
    "red": (0.72, 0.05, 0.05),
    "orange": (0.90, 0.30, 0.03),
    "yellow": (0.88, 0.70, 0.06),
    "green": (0.08, 0.45, 0.09),
    "turquoise": (0.05, 0.55, 0.52),
    "blue": (0.06, 0.16, 0.72),
    "purple": (0.32, 0.07, 0.55),
    "pink": (0.90, 0.30, 0.48),
    "brown": (0.26, 0.12, 0.05),
    "white": (0.82, 0.82, 0.80),
    "grey": (0.30, 0.30, 0.31),
    "black": (0.045, 0.045, 0.05),
}
PATTERNS = ("plain", "striped", "checked", "spotted")
MATERIALS = ("matte", "shiny", "metallic")


@dataclass(frozen=True)
class Paint:
    """Two colours and the pattern that mixes them: 0 to 1 of the second by waves along three axes."""

    name: Tensor  # row of PALETTE
    pattern: Tensor  # row of PATTERNS
    colour: Tensor
    second: Tensor
    waves: Tensor  # how many per unit of length
    phase: Tensor


@dataclass(frozen=True)
class Objects:
    """(n, OBJECTS) each, vectors and matrices with their axes before these; column 0 is the main object."""

    shape: Tensor  # row of SHAPES
    present: Tensor
    centre: Tensor
    turn: Tensor  # from the object's axes to the world's
    stretch: Tensor
    reach: Tensor  # the radius of a sphere around everything
    paint: Paint
    material: Tensor  # row of MATERIALS


@dataclass(frozen=True)
class Camera:
    """(..., n, 1) each; rows of `axes` are right, down and forward; `field` is half the picture at distance 1."""

    eye: Tensor
    axes: Tensor
    field: Tensor


@dataclass(frozen=True)
class Surroundings:
    """(..., n, 1) each."""

    ground: Paint
    horizon: Tensor
    zenith: Tensor
    light: Tensor  # towards it
    brightness: Tensor
    ambient: Tensor


@dataclass(frozen=True)
class Motion:
    """The motion from frame 1 to 2: objects turn by `spin` about their centres and shift; the camera is another one."""

    spin: Tensor
    shift: Tensor
    camera: Camera


@dataclass(frozen=True)
class Stage:
    objects: Objects
    surroundings: Surroundings
    camera: Camera
    motion: Motion


def stage(keys: Tensor) -> Stage:
    """The scenes of keys (n,), in float32."""
    objects = draw_objects(keys)
    camera = draw_camera(keys, objects)
    built: Stage = single(Stage(objects, draw_surroundings(keys), camera, draw_motion(keys, camera)))
    return built


def moved(before: Stage) -> Stage:
    """The stage at the time of the second frame."""
    objects, motion = before.objects, before.motion
    objects = replace(objects, centre=objects.centre + motion.shift, turn=product(motion.spin, objects.turn))
    return replace(before, objects=objects, camera=motion.camera)


def main_shape(keys: Tensor) -> Tensor:
    """The class of each scene, without drawing the rest of it."""
    return (numbers(keys, "class", 1)[0] * len(SHAPES)).long()


def numbers(keys: Tensor, topic: str, count: int) -> tuple[Tensor, ...]:
    """`count` tensors shaped as keys, uniform in [0, 1), for a topic."""
    return uniform(key(keys, int.from_bytes(topic.encode()[:7], "little")), count).unbind(-1)


def between(low: float | Tensor, high: float | Tensor, share: Tensor) -> Tensor:
    return low + (high - low) * share


def single(part: Any) -> Any:
    """All floats of nested dataclasses in float32.

    The rounding also hides the last bits of sine and cosine, which differ between machines.
    """
    if isinstance(part, Tensor):
        return part.float().contiguous() if part.is_floating_point() else part
    return replace(part, **{field.name: single(getattr(part, field.name)) for field in fields(part)})


def draw_objects(keys: Tensor) -> Objects:
    each = key(keys[:, None], torch.arange(OBJECTS))
    main = (torch.arange(OBJECTS) == 0).expand(each.shape)
    shape = torch.where(main, main_shape(keys)[:, None], (numbers(each, "shape", 1)[0] * len(SHAPES)).long())
    present = torch.arange(OBJECTS) < 2 + (numbers(keys, "count", 1)[0] * (OBJECTS - 1)).long()[:, None]
    stretch, reach = draw_stretch(each, shape, main)
    turn = draw_turn(each)
    x, y = draw_place(keys, each, main, reach)
    centre = torch.stack([x, y, rest_height(shape, turn, stretch)])
    paint = draw_paint(each, muted=0.0, waves=(1.1, 2.2))
    paint = replace(paint, waves=paint.waves * (1 / reach))
    return Objects(shape, present, centre, turn, stretch, reach, paint, choice(numbers(each, "gloss", 1)[0], (5, 4, 2)))


def choice(share: Tensor, weights: tuple[int, ...]) -> Tensor:
    """An option by its weight."""
    bounds = torch.tensor(weights, dtype=torch.float64).cumsum(0) / sum(weights)
    return torch.bucketize(share.contiguous(), bounds[:-1], right=True)


def draw_stretch(each: Tensor, shape: Tensor, main: Tensor) -> tuple[Tensor, Tensor]:
    """Half widths, and the radius of the sphere around the object, which is what is drawn by lot."""
    size, a, b, c = numbers(each, "size", 4)
    wanted = torch.where(main, between(0.9, 1.1, size), between(0.28, 0.45, size))
    limits = torch.tensor([[*s.stretch[0], *s.stretch[1]] for s in SHAPES.values()], dtype=torch.float64)[shape]
    rounded = torch.tensor([s.round for s in SHAPES.values()])[shape]
    x = between(limits[..., 0], limits[..., 1], a)
    y = torch.where(rounded, x, between(limits[..., 0], limits[..., 1], b))
    z = between(limits[..., 2], limits[..., 3], c)
    points = torch.tensor([[s.corner, *s.keypoints] for s in SHAPES.values()], dtype=torch.float64)[shape]
    reach = (points * torch.stack([x, y, z], -1)[..., None, :]).square().sum(-1).amax(-1).sqrt()
    return torch.stack([x, y, z]) * (wanted / reach), wanted


def about_z(angle: Tensor) -> Tensor:
    c, s, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return torch.stack([c, -s, zero, s, c, zero, zero, zero, zero + 1]).view(3, 3, *angle.shape)


def about_x(angle: Tensor) -> Tensor:
    c, s, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return torch.stack([zero + 1, zero, zero, zero, c, -s, zero, s, c]).view(3, 3, *angle.shape)


def draw_turn(each: Tensor) -> Tensor:
    """Most objects stand upright; the others lean."""
    yaw, spin, lean, much = numbers(each, "turn", 4)
    tilt = torch.where(lean < 0.65, 0.0, between(0.0, 1.2, much))
    return product(about_z(2 * math.pi * yaw), product(about_x(tilt), about_z(2 * math.pi * spin)))


def rest_height(shape: Tensor, turn: Tensor, stretch: Tensor) -> Tensor:
    """How high an object's middle is when its lowest point touches the ground."""
    down = -turn[2] * stretch
    height = torch.zeros_like(stretch[0])
    for row, solid in enumerate(SHAPES.values()):
        height = torch.where(shape == row, solid.support(down), height)
    return height


def draw_place(keys: Tensor, each: Tensor, main: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """The others stand beside and behind the main object, each in its own sector: nothing overlaps, even in motion."""
    around, mirrored = numbers(keys[:, None], "around", 2)
    angle, far = numbers(each, "place", 2)
    sector = (torch.arange(OBJECTS) + (around * 3).long()) % 3
    degrees = 5.0 + 62.0 * sector + 25.0 * angle
    distance = torch.where(main, 0.0, 1.3 + reach + 0.9 * far)
    radians = degrees * (math.pi / 180)
    return distance * radians.cos() * torch.where(mirrored < 0.5, -1.0, 1.0), distance * radians.sin()


def draw_paint(each: Tensor, muted: float, waves: tuple[float, float]) -> Paint:
    hue, kind, light, amount, often, *rest = numbers(each, "paint", 11)
    name = (hue * len(PALETTE)).long()
    base = torch.tensor(list(PALETTE.values()), dtype=torch.float64)[name].movedim(-1, 0)
    colour = base * between(0.8, 1.2, torch.stack(rest[:3]))
    colour = mix(colour, (colour[0] + colour[1] + colour[2]) / 3 * 0.7 + 0.1, muted)
    bright = (colour[0] + colour[1] + colour[2]) / 3
    paler = mix(colour, 0.9, between(0.35, 0.75, amount))
    second = torch.where(between(0.0, 0.6, light) > bright, paler, colour * 0.3)
    often = between(*waves, often).expand(3, *often.shape)
    return Paint(name, choice(kind, (5, 2, 2, 2)), colour, second, often, torch.stack(rest[3:]))


def draw_surroundings(keys: Tensor) -> Surroundings:
    each = keys[:, None]
    ground = draw_paint(key(each, 99), muted=0.45, waves=(0.5, 1.0))
    a, b, c, d, e, f, low = numbers(each, "sky", 7)
    horizon = torch.stack([between(0.5, 0.95, a), between(0.5, 0.9, b), between(0.5, 0.95, c)])
    zenith = torch.stack([between(0.05, 0.6, d), between(0.1, 0.6, e), between(0.15, 0.9, f)])
    dim = between(0.35, 1.0, low)
    side, height, warm, strong, fill = numbers(each, "light", 5)
    azimuth, elevation = between(-2.1, 2.1, side) - math.pi / 2, between(0.45, 1.15, height)
    light = torch.stack([elevation.cos() * azimuth.cos(), elevation.cos() * azimuth.sin(), elevation.sin()])
    power = between(0.75, 1.15, strong)
    brightness = torch.stack([power * between(0.9, 1.1, warm), power, power * between(1.15, 0.85, warm)])
    return Surroundings(ground, horizon * dim, zenith * dim, light, brightness, between(0.24, 0.42, fill))


def draw_camera(keys: Tensor, objects: Objects) -> Camera:
    """Lighting the main object, at the distance from which it has the drawn size in the picture."""
    size, height, angle, aside, above, roll = numbers(keys[:, None], "camera", 6)
    field = between(0.26, 0.42, angle)
    share = between(0.58, 0.88, size)
    elevation, reach = between(0.2, 0.85, height), objects.reach[:, :1]
    distance = reach / (share * field)
    slack = between(0.15, 0.38, 1 - size) * distance * field
    zero = torch.zeros_like(distance)
    offset = torch.stack([between(-1, 1, aside) * slack, zero, between(-0.7, 1, above) * slack])
    target = objects.centre[:, :, :1] + offset
    eye = target + torch.stack([zero, -distance * elevation.cos(), distance * elevation.sin()])
    return look_at(eye, target, between(-0.2, 0.2, roll), field)


def look_at(eye: Tensor, target: Tensor, roll: Tensor, field: Tensor) -> Camera:
    forward = unit(target - eye)
    zero = torch.zeros_like(roll)
    level = unit(cross(forward, torch.stack([zero, zero, zero + 1])))
    under = cross(forward, level)
    right = level * roll.cos() + under * roll.sin()
    return Camera(eye, torch.stack([right, cross(forward, right), forward]), field)


def draw_motion(keys: Tensor, camera: Camera) -> Motion:
    """Small enough that nothing collides."""
    turn, x, y = numbers(key(keys[:, None], torch.arange(OBJECTS)), "motion", 3)
    spin = about_z(between(-0.3, 0.3, turn))
    shift = torch.stack([between(-0.14, 0.14, x), between(-0.14, 0.14, y), torch.zeros_like(x)])
    pan, tip, a, b, c = numbers(keys[:, None], "travel", 5)
    step = torch.stack([between(-0.15, 0.15, a), between(-0.15, 0.15, b), between(-0.1, 0.1, c)])
    small = product(about_z(between(-0.03, 0.03, pan)), about_x(between(-0.02, 0.02, tip)))
    axes = torch.stack([apply(small, axis) for axis in camera.axes])
    return Motion(spin, shift, Camera(camera.eye + step, axes, camera.field))
