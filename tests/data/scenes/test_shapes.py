"""The solids against a brute-force oracle: an implicit function sampled densely along each ray, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from manyview.core.rng import key, uniform
from manyview.data.scenes.shapes import BAR, FLOOR, LENGTH, SHAPES, THICK, TUBE
from manyview.data.scenes.vectors import dot, unit


def most(*parts: Tensor) -> Tensor:
    return torch.stack(parts).amax(0)


def bar(p: Tensor, half: tuple[float, float, float]) -> Tensor:
    return most(*(part.abs() - h for part, h in zip(p, half, strict=True)))


def ring(p: Tensor) -> Tensor:
    return torch.hypot(torch.hypot(p[0], p[1]) - 1, p[2]) - TUBE


def pill(p: Tensor) -> Tensor:
    return (p[0] ** 2 + p[1] ** 2 + (p[2] - p[2].clamp(-LENGTH, LENGTH)) ** 2).sqrt() - THICK


def jack(p: Tensor) -> Tensor:
    return -most(-bar(p, (1, BAR, BAR)), -bar(p, (BAR, 1, BAR)), -bar(p, (BAR, BAR, 1)))


IMPLICIT: dict[str, Callable[[Tensor], Tensor]] = {  # negative inside
    "sphere": lambda p: dot(p, p).sqrt() - 1,
    "box": lambda p: bar(p, (1, 1, 1)),
    "cylinder": lambda p: most(torch.hypot(p[0], p[1]) - 1, p[2].abs() - 1),
    "cone": lambda p: most(torch.hypot(p[0], p[1]) - (1 - p[2]) / 2, -1 - p[2]),
    "torus": ring,
    "pyramid": lambda p: most(p[0].abs() - (1 - p[2]) / 2, p[1].abs() - (1 - p[2]) / 2, -1 - p[2]),
    "capsule": pill,
    "octahedron": lambda p: p[0].abs() + p[1].abs() + p[2].abs() - 1,
    "dome": lambda p: most((p[0] ** 2 + p[1] ** 2 + (p[2] - FLOOR) ** 2).sqrt() - 1, FLOOR - p[2]),
    "cross": jack,
}


def rays(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """From a sphere of radius 4 towards points near the solid, with directions of various lengths."""
    numbers = uniform(key(seed, torch.arange(count)), 7) * 2 - 1
    origin = 4 * unit(numbers[:, :3].T)
    target = 1.3 * numbers[:, 3:6].T
    pace = 1 + 0.5 * numbers[:, 6]
    return origin, (target - origin) / 4 * pace


def brute_force(name: str, origin: Tensor, direction: Tensor, steps: int = 2000) -> tuple[Tensor, Tensor]:
    """The first sample inside the solid, infinite without one, and the least value along the ray."""
    t = torch.linspace(0, 11, steps, dtype=torch.float64)
    points = origin[:, :, None] + direction[:, :, None] * t
    value = IMPLICIT[name](points)
    inside = value < 0
    entry = t[inside.double().argmax(1)]
    return torch.where(inside.any(1), entry, torch.inf), value.amin(1)


@pytest.mark.parametrize("name", SHAPES)
def test_a_ray_enters_where_brute_force_finds_the_first_point_inside(name: str) -> None:
    origin, direction = rays(500, seed=1)
    expected, deepest = brute_force(name, origin, direction)
    found = SHAPES[name].enter(origin.float(), direction.float()).double()
    clear = deepest.abs() > 0.01  # a ray that only touches may go either way
    assert clear.sum() > 400
    right = torch.isclose(found[clear], expected[clear], atol=0.0075, rtol=0).double().mean()
    assert right >= (0.99 if name == "torus" else 1)  # walking past a torus's near side may take too many steps
    assert 0.1 < (found < torch.inf).double().mean() < 0.9


@pytest.mark.parametrize("name", SHAPES)
def test_the_entry_lies_on_the_surface_and_its_normal_faces_the_ray(name: str) -> None:
    origin, direction = rays(2000, seed=2)
    origin, direction = origin.float(), direction.float()
    t = SHAPES[name].enter(origin, direction)
    hit = t < torch.inf
    origin, direction = origin[:, hit], direction[:, hit]
    point = origin + direction * t[hit]
    assert IMPLICIT[name](point.double()).abs().max() < 4e-3
    facing = dot(unit(SHAPES[name].normal(point)), unit(direction))
    assert (facing < 0.02).double().mean() > 0.998
    assert (facing < 0).double().mean() > 0.98


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_along_the_normal_leaves_the_solid(name: str) -> None:
    origin, direction = rays(1000, seed=3)
    t = SHAPES[name].enter(origin, direction)
    hit = t < torch.inf
    point = origin[:, hit] + direction[:, hit] * t[hit]
    normal = unit(SHAPES[name].normal(point))
    outside, inside = IMPLICIT[name](point + 0.02 * normal), IMPLICIT[name](point - 0.02 * normal)
    assert (outside > 0.005).double().mean() > 0.995
    assert (inside < 0).double().mean() > 0.97  # a step inwards crosses the solid near its edges


@pytest.mark.parametrize("name", SHAPES)
def test_the_normal_is_the_gradient_of_the_implicit_function(name: str) -> None:
    origin, direction = rays(1000, seed=4)
    t = SHAPES[name].enter(origin, direction)
    hit = t < torch.inf
    point = origin[:, hit] + direction[:, hit] * t[hit]
    leaves = point.clone().requires_grad_()
    slope = unit(torch.autograd.grad(IMPLICIT[name](leaves).sum(), leaves)[0])
    assert (dot(slope, unit(SHAPES[name].normal(point))) > 0.999).double().mean() > 0.97  # the rest is at edges


@pytest.mark.parametrize("name", SHAPES)
def test_the_support_is_the_farthest_point_in_a_direction(name: str) -> None:
    grid = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)
    x, y, z = torch.meshgrid(grid, grid, grid, indexing="ij")
    inside = IMPLICIT[name](torch.stack([x, y, z])) <= 1e-9
    cloud = torch.stack([x[inside], y[inside], z[inside]], 1)
    towards = uniform(key(5, torch.arange(50)), 3) * 2 - 1
    expected = (towards @ cloud.T).amax(1)
    found = SHAPES[name].support(towards.T)
    assert (found >= expected - 1e-9).all()
    assert (found - expected).max() < 0.12  # the grid is coarse


@pytest.mark.parametrize("name", SHAPES)
def test_keypoints_lie_on_the_surface(name: str) -> None:
    points = torch.tensor(SHAPES[name].keypoints, dtype=torch.float64).T
    assert IMPLICIT[name](points).abs().max() < 1e-9
    assert len(SHAPES[name].keypoints) == 6


@pytest.mark.parametrize("name", SHAPES)
def test_a_ray_that_leads_away_or_starts_inside_meets_nothing(name: str) -> None:
    origin, direction = rays(300, seed=6)
    assert (SHAPES[name].enter(origin, -direction) == torch.inf).all()


@pytest.mark.parametrize("name", SHAPES)
def test_a_ray_along_an_axis_is_no_division_by_zero(name: str) -> None:
    one = torch.eye(3)
    t = SHAPES[name].enter(0.3 - 4 * one, one)
    assert not t.isnan().any()
