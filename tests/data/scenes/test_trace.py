from __future__ import annotations

import pytest
import torch

from manyview.core.rng import key
from manyview.data.scenes.shading import FOUR
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import OBJECTS, Stage, stage
from manyview.data.scenes.trace import FAR, camera_rays, first_surface, ground_distance, in_shadow, project
from manyview.data.scenes.vectors import apply, dot


@pytest.fixture(scope="module")
def scenes() -> Stage:
    return stage(key(5, 0, torch.arange(30)))


def test_a_point_on_a_ray_is_seen_in_the_ray_s_pixel(scenes: Stage) -> None:
    point = scenes.camera.eye + camera_rays(scenes.camera, 9) * 3.7
    column, row, ahead = project(scenes.camera, point, 9)
    middle = torch.arange(9) + 0.5
    torch.testing.assert_close(column, middle.repeat(9).expand(30, -1), atol=1e-4, rtol=0)
    torch.testing.assert_close(row, middle.repeat_interleave(9).expand(30, -1), atol=1e-4, rtol=0)
    assert (ahead > 0).all()


def test_more_rays_per_pixel_stay_in_their_pixel(scenes: Stage) -> None:
    point = scenes.camera.eye + camera_rays(scenes.camera, 5, FOUR) * 2.0
    column, row, _ = project(scenes.camera, point, 5)
    pixels = (row.floor() * 5 + column.floor()).view(30, 4, 25)
    assert (pixels == torch.arange(25)).all()


def test_the_first_surface_is_the_nearest_entry_of_any_object(scenes: Stage) -> None:
    """Every object is asked about every ray, in float64."""
    direction = camera_rays(scenes.camera, 16)
    surface = first_surface(scenes, direction)
    found = torch.full((30 * 256,), torch.inf, dtype=torch.float64).index_copy(0, surface.ray, surface.t.double())
    nearest = torch.full((30, 256), torch.inf, dtype=torch.float64)
    for scene in range(30):
        for thing in range(OBJECTS):
            if scenes.objects.present[scene, thing]:
                nearest[scene] = torch.minimum(nearest[scene], entry(scenes, scene, thing))
    same = torch.isclose(found, nearest.view(-1), atol=2e-3, rtol=0)
    assert same.double().mean() > 0.998


def entry(scenes: Stage, scene: int, thing: int) -> torch.Tensor:
    objects = scenes.objects
    direction = camera_rays(scenes.camera, 16)[:, scene].double()
    into = (objects.turn[..., scene, thing].T / objects.stretch[:, scene, thing, None]).double()
    start = scenes.camera.eye[:, scene, 0].double() - objects.centre[:, scene, thing].double()
    own_start, own_direction = apply(into, start)[:, None].expand(3, 256), apply(into, direction)
    return list(SHAPES.values())[int(objects.shape[scene, thing])].enter(own_start, own_direction)


def test_rays_above_the_horizon_never_meet_the_ground(scenes: Stage) -> None:
    direction = camera_rays(scenes.camera, 16)
    distance = ground_distance(scenes.camera, direction)
    assert (distance[direction[2] >= 0] == torch.inf).all()
    assert (distance[distance < torch.inf] < FAR).all()


def test_the_light_does_not_reach_what_lies_under_an_object() -> None:
    scenes = stage(key(4, 0, torch.arange(20)))
    centre = scenes.objects.centre[:, :, :1]
    light = scenes.surroundings.light
    behind = centre - 3 * light
    before = centre + 3 * light
    solid = scenes.objects.shape[:, 0] != 4  # the light may shine through a torus
    assert in_shadow(scenes.objects, behind, light)[solid].all()
    assert not in_shadow(scenes.objects, before, light).any()


def test_the_camera_axes_are_at_right_angles(scenes: Stage) -> None:
    for camera in (scenes.camera, scenes.motion.camera):
        for i, a in enumerate(camera.axes):
            for j, b in enumerate(camera.axes):
                torch.testing.assert_close(dot(a, b), torch.full_like(a[0], float(i == j)), atol=1e-5, rtol=0)
