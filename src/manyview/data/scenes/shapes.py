"""Ten solids: where a ray enters them, their normals, how far they reach, and points on them.

Each solid has its own coordinates, in which its size is fixed; z is its axis. A ray is `origin + t * direction`, and
the direction need not have length 1, so `t` is the same before and after an object's rotation and stretching.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.data.scenes.vectors import dot

Interval = tuple[Tensor, Tensor]  # where a ray enters a convex solid and where it leaves; empty if they are swapped

TUBE = 0.42  # of the torus, whose ring has radius 1
LENGTH = 0.75  # of the capsule from its middle to the centre of a cap
THICK = 0.6  # of the capsule, a radius
FLOOR = -0.4  # of the dome, below which its sphere is cut
BAR = 0.32  # half the width of the cross's bars, which are 2 long
ROUNDS, STEPS = 5, 12  # along a ray towards a torus; after each round only those under way go on
CLOSE = 5e-4  # to the torus, which counts as arrived
TINY = 1e-12


@dataclass(frozen=True)
class Shape:
    """A solid in its own coordinates.

    enter      (origin, direction) -> t > 0 at which the ray enters it, infinite if it never does
    normal     point on the surface -> the direction away from the solid, of any length
    support    direction u -> max <x, u> over the solid
    stretch    the half widths (least, most) of x and y, and of z, that an object of this shape may have
    round      one number stretches x and y
    corner     the point that is farthest from the middle
    keypoints  six points on the surface
    """

    enter: Callable[[Tensor, Tensor], Tensor]
    normal: Callable[[Tensor], Tensor]
    support: Callable[[Tensor], Tensor]
    stretch: tuple[tuple[float, float], tuple[float, float]]
    round: bool
    corner: tuple[float, float, float]
    keypoints: tuple[tuple[float, float, float], ...]


def first(interval: Interval) -> Tensor:
    """The entry of rays that start outside a convex solid and meet it ahead."""
    near, far = interval
    return torch.where((near < far) & (near > 0), near, torch.inf)


def both(a: Interval, b: Interval) -> Interval:
    return torch.maximum(a[0], b[0]), torch.minimum(a[1], b[1])


def slab(start: Tensor, step: Tensor, low: float, high: float) -> Interval:
    """low <= start + t step <= high."""
    inverse = 1 / torch.where(step.abs() < TINY, TINY, step)
    a, b = (low - start) * inverse, (high - start) * inverse
    return torch.minimum(a, b), torch.maximum(a, b)


def halfspace(start: Tensor, step: Tensor, high: float) -> Interval:
    """start + t step <= high."""
    safe = torch.where(step.abs() < TINY, TINY, step)
    t = (high - start) / safe
    return torch.where(safe < 0, t, -torch.inf), torch.where(safe < 0, torch.inf, t)


def between_roots(a: Tensor, b: Tensor, c: Tensor) -> Interval:
    """a t^2 + 2 b t + c <= 0 for a > 0."""
    square = b * b - a * c
    root = square.clamp_min(0).sqrt()
    a = a.clamp_min(TINY)
    near = torch.where(square > 0, (-b - root) / a, torch.inf)
    return near, (root - b) / a


def ball(origin: Tensor, direction: Tensor, radius: float = 1.0) -> Interval:
    return between_roots(dot(direction, direction), dot(origin, direction), dot(origin, origin) - radius * radius)


def tube(origin: Tensor, direction: Tensor, radius: float = 1.0) -> Interval:
    """x^2 + y^2 <= radius^2."""
    (x, y, _), (dx, dy, _) = origin, direction
    return between_roots(dx * dx + dy * dy, x * dx + y * dy, x * x + y * y - radius * radius)


def raised(point: Tensor, height: float | Tensor) -> Tensor:
    return torch.stack([point[0], point[1], point[2] + height])


def block(origin: Tensor, direction: Tensor, half: Sequence[float]) -> Interval:
    x, y, z = (slab(o, d, -h, h) for o, d, h in zip(origin, direction, half, strict=True))
    return both(both(x, y), z)


def enter_cone(origin: Tensor, direction: Tensor) -> Tensor:
    """x^2 + y^2 <= ((1 - z) / 2)^2. A ray that is steeper than the cone meets the part above the tip as well."""
    (x, y, z), (dx, dy, dz) = origin, direction
    below = 1 - z
    a = dx * dx + dy * dy - dz * dz / 4
    b = x * dx + y * dy + below * dz / 4
    square = b * b - a * (x * x + y * y - below * below / 4)
    root = square.clamp_min(0).sqrt()
    a = torch.where(a.abs() < TINY, TINY, a)
    low, high = torch.minimum((-b - root) / a, (root - b) / a), torch.maximum((-b - root) / a, (root - b) / a)
    steep, down = a < 0, dz < 0
    near = torch.where(steep, torch.where(down, high, -torch.inf), low)
    far = torch.where(steep, torch.where(down, torch.inf, low), high)
    near = torch.where(square > 0, near, torch.inf)
    return first(both((near, far), slab(z, dz, -1, 1)))


def enter_pyramid(origin: Tensor, direction: Tensor) -> Tensor:
    """|x| and |y| <= (1 - z) / 2."""
    (x, y, z), (dx, dy, dz) = origin, direction
    inside = slab(z, dz, -1, 1)
    for across, step in ((x, dx), (y, dy)):
        for sign in (1, -1):
            inside = both(inside, halfspace(z / 2 + sign * across, dz / 2 + sign * step, 0.5))
    return first(inside)


def enter_capsule(origin: Tensor, direction: Tensor) -> Tensor:
    middle = both(tube(origin, direction, THICK), slab(origin[2], direction[2], -LENGTH, LENGTH))
    parts = [middle, *(ball(raised(origin, h), direction, THICK) for h in (-LENGTH, LENGTH))]
    nearest = [torch.where(near < far, near, torch.inf) for near, far in parts]
    near = torch.minimum(torch.minimum(nearest[0], nearest[1]), nearest[2])
    return torch.where(near > 0, near, torch.inf)


def enter_octahedron(origin: Tensor, direction: Tensor) -> Tensor:
    (x, y, z), (dx, dy, dz) = origin, direction
    inside = slab(x + y + z, dx + dy + dz, -1, 1)
    inside = both(inside, slab(x + y - z, dx + dy - dz, -1, 1))
    inside = both(inside, slab(x - y + z, dx - dy + dz, -1, 1))
    return first(both(inside, slab(x - y - z, dx - dy - dz, -1, 1)))


def enter_cross(origin: Tensor, direction: Tensor) -> Tensor:
    bars = ((1, BAR, BAR), (BAR, 1, BAR), (BAR, BAR, 1))
    a, b, c = (first(block(origin, direction, bar)) for bar in bars)
    return torch.minimum(torch.minimum(a, b), c)


def enter_torus(origin: Tensor, direction: Tensor) -> Tensor:
    """Walks along the ray by the distance to the torus, which never steps through it."""
    hull = both(tube(origin, direction, 1 + TUBE), slab(origin[2], direction[2], -TUBE, TUBE))
    found = torch.full_like(hull[0], torch.inf)
    speed = dot(direction, direction).sqrt()
    ray = ((hull[0] < hull[1]) & (hull[1] > 0)).nonzero()[:, 0]
    walked, end = (hull[0] * speed).clamp_min(0)[ray], (hull[1] * speed)[ray]
    start, ahead = origin[:, ray], (direction / speed)[:, ray]
    for _ in range(ROUNDS):
        for _ in range(STEPS):
            distance = to_torus(start + ahead * walked)
            walked = walked + distance
        arrived = ((distance < CLOSE) & (walked > 0) & (walked < end + CLOSE)).nonzero()[:, 0]
        found[ray[arrived]] = walked[arrived]
        under_way = ((distance >= CLOSE) & (walked < end)).nonzero()[:, 0]
        ray, walked, end = ray[under_way], walked[under_way], end[under_way]
        start, ahead = start[:, under_way], ahead[:, under_way]
    return found / speed


def to_torus(point: Tensor) -> Tensor:
    x, y, z = point.unbind(0)
    beside = (x * x + y * y).sqrt() - 1
    return (beside * beside + z * z).sqrt() - TUBE


def normal_box(point: Tensor) -> Tensor:
    x, y, z = point.abs()
    by_x = (x >= y) & (x >= z)
    by_y = ~by_x & (y >= z)
    return torch.stack([point[0] * by_x, point[1] * by_y, point[2] * ~(by_x | by_y)])


def normal_cylinder(point: Tensor) -> Tensor:
    x, y, z = point
    side = x * x + y * y > z * z
    return torch.stack([x * side, y * side, z * ~side])


def normal_cone(point: Tensor) -> Tensor:
    x, y, z = point
    wide = (1 - z) / 2
    side = (z + 1) > ((x * x + y * y).sqrt() - wide).abs()
    return torch.stack([x * side, y * side, torch.where(side, wide / 2, -1.0)])


def normal_torus(point: Tensor) -> Tensor:
    x, y, z = point
    inward = 1 - 1 / (x * x + y * y).sqrt().clamp_min(1e-6)
    return torch.stack([x * inward, y * inward, z])


def normal_pyramid(point: Tensor) -> Tensor:
    x, y, z = point
    by_x = x.abs() >= y.abs()
    base = (z + 1).abs() < (torch.maximum(x.abs(), y.abs()) - (1 - z) / 2).abs()
    return torch.stack([x.sign() * (by_x & ~base), y.sign() * ~(by_x | base), torch.where(base, -1.0, 0.5)])


def normal_dome(point: Tensor) -> Tensor:
    from_middle = raised(point, -FLOOR)
    base = from_middle[2].abs() < (dot(from_middle, from_middle) - 1).abs()
    return torch.stack([from_middle[0] * ~base, from_middle[1] * ~base, torch.where(base, -1.0, from_middle[2])])


def normal_cross(point: Tensor) -> Tensor:
    x, y, z = point.abs()
    largest = torch.maximum(torch.maximum(x, y), z)
    second = torch.maximum(torch.minimum(x, y), torch.minimum(torch.maximum(x, y), z))
    end = (1 - largest) < (BAR - second).abs()
    chosen = torch.where(end, largest, second)
    by_x = x == chosen
    by_y = ~by_x & (y == chosen)
    return torch.stack([point[0].sign() * by_x, point[1].sign() * by_y, point[2].sign() * ~(by_x | by_y)])


def across(u: Tensor) -> Tensor:
    return (u[0] * u[0] + u[1] * u[1]).sqrt()


def length(u: Tensor) -> Tensor:
    return dot(u, u).sqrt()


def support_box(u: Tensor) -> Tensor:
    return u[0].abs() + u[1].abs() + u[2].abs()


def support_octahedron(u: Tensor) -> Tensor:
    return torch.maximum(torch.maximum(u[0].abs(), u[1].abs()), u[2].abs())


def six(x: float, z: float, low: float | None = None) -> tuple[tuple[float, float, float], ...]:
    """Points at both ends of the x, y and z axes."""
    return (x, 0, 0), (-x, 0, 0), (0, x, 0), (0, -x, 0), (0, 0, z), (0, 0, -z if low is None else low)


ON_RING = (*six(1 + TUBE, 0)[:4], (1.0, 0.0, TUBE), (-1.0, 0.0, -TUBE))
ON_DOME = (*((x, y, FLOOR) for x, y, _ in six(1, 0)[:4]), (0.0, 0.0, 1 + FLOOR), (0.0, 0.0, FLOOR))
ONE, ABOUT = (1.0, 1.0), (0.8, 1.25)

# fmt: off
SHAPES: dict[str, Shape] = {
    "sphere": Shape(lambda o, d: first(ball(o, d)), lambda p: p, length,
                    (ONE, ONE), True, (1, 0, 0), six(1, 1)),
    "box": Shape(lambda o, d: first(block(o, d, (1, 1, 1))), normal_box, support_box,
                 (ABOUT, ABOUT), False, (1, 1, 1), six(1, 1)),
    "cylinder": Shape(lambda o, d: first(both(tube(o, d), slab(o[2], d[2], -1, 1))), normal_cylinder,
                      lambda u: across(u) + u[2].abs(), ((0.7, 1.0), (0.75, 1.1)), True, (1, 0, 1), six(1, 1)),
    "cone": Shape(enter_cone, normal_cone, lambda u: torch.maximum(u[2], across(u) - u[2]),
                  ((0.9, 1.2), (0.9, 1.2)), True, (1, 0, -1), six(0.5, 1)),
    "torus": Shape(enter_torus, normal_torus, lambda u: across(u) + TUBE * length(u),
                   (ONE, (0.85, 1.15)), True, (1 + TUBE, 0, 0), ON_RING),
    "pyramid": Shape(enter_pyramid, normal_pyramid, lambda u: torch.maximum(u[2], u[0].abs() + u[1].abs() - u[2]),
                     ((0.9, 1.2), (0.8, 1.1)), True, (1, 1, -1), six(0.5, 1)),
    "capsule": Shape(enter_capsule, lambda p: raised(p, -p[2].clamp(-LENGTH, LENGTH)),
                     lambda u: THICK * length(u) + LENGTH * u[2].abs(),
                     (ONE, ONE), True, (0, 0, LENGTH + THICK), six(THICK, LENGTH + THICK)),
    "octahedron": Shape(enter_octahedron, torch.sign, support_octahedron,
                        ((0.9, 1.1), (0.9, 1.3)), True, (0, 0, 1), six(1, 1)),
    "dome": Shape(lambda o, d: first(both(ball(raised(o, -FLOOR), d), halfspace(-o[2], -d[2], -FLOOR))), normal_dome,
                  lambda u: torch.where(u[2] > 0, length(u), across(u)) + FLOOR * u[2],
                  (ONE, (0.85, 1.15)), True, (1, 0, FLOOR), ON_DOME),
    "cross": Shape(enter_cross, normal_cross, lambda u: BAR * support_box(u) + (1 - BAR) * support_octahedron(u),
                   (ONE, ONE), True, (1, BAR, BAR), six(1, 1)),
}
# fmt: on
