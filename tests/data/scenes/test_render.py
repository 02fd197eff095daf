"""The exact views agree with one another and with what is known about the scene."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.core.rng import key
from manyview.data.scenes.render import render
from manyview.data.scenes.stage import OBJECTS, Stage, moved, stage
from manyview.data.scenes.trace import FAR, camera_rays, first_surface, project
from manyview.data.scenes.vectors import apply

SIZE = 48
VIEWS = ("rgb", "rgb2", "depth", "normals", "semantic", "instance", "flow")


@pytest.fixture(scope="module")
def scenes() -> Stage:
    return stage(key(3, 0, torch.arange(60)))


@pytest.fixture(scope="module")
def views(scenes: Stage) -> dict[str, Tensor]:
    return render(scenes, SIZE, VIEWS)


def test_views_have_their_kinds(views: dict[str, Tensor]) -> None:
    channels = {"rgb": 3, "rgb2": 3, "depth": 1, "normals": 3, "semantic": 1, "instance": 1, "flow": 2}
    for name, view in views.items():
        assert view.shape == (60, channels[name], SIZE, SIZE)
        assert view.dtype == (torch.float32 if name in ("depth", "normals", "flow") else torch.uint8)
        assert view.float().isfinite().all()


def test_normals_have_length_one_and_face_the_camera(scenes: Stage, views: dict[str, Tensor]) -> None:
    normals, sky = views["normals"], views["semantic"][:, 0] == 0
    length = normals.square().sum(1).sqrt()
    assert (length[sky] == 0).all()
    torch.testing.assert_close(length[~sky], torch.ones_like(length[~sky]), atol=1e-4, rtol=0)
    rays = apply_camera(scenes)
    facing = (normals * rays).sum(1)[~sky]
    assert (facing < 0.02).double().mean() > 0.999


def apply_camera(scenes: Stage) -> Tensor:
    """Directions of the pixels' rays in the camera's own axes, (n, 3, H, W)."""
    return apply(scenes.camera.axes, camera_rays(scenes.camera, SIZE)).transpose(0, 1).reshape(-1, 3, SIZE, SIZE)


def test_masks_and_depth_tell_the_same_story(scenes: Stage, views: dict[str, Tensor]) -> None:
    depth, semantic, instance = views["depth"][:, 0], views["semantic"][:, 0], views["instance"][:, 0]
    assert (depth[semantic == 0] == FAR).all()
    assert (depth[semantic > 0] < FAR).all()
    assert depth.min() > 0
    assert ((instance > 0) == (semantic > 1)).all()
    shape = torch.cat([torch.zeros(60, 1), scenes.objects.shape.float() + 2], 1)
    expected = shape.gather(1, instance.view(60, -1).long()).view(60, SIZE, SIZE)
    assert (semantic[instance > 0] == expected[instance > 0]).all()


def test_ground_pixels_lie_on_the_ground_and_objects_above_it(scenes: Stage, views: dict[str, Tensor]) -> None:
    rays = camera_rays(scenes.camera, SIZE)
    height = (scenes.camera.eye + rays * views["depth"].view(60, -1))[2]
    semantic = views["semantic"].view(60, -1)
    assert height[semantic == 1].abs().max() < 1e-4
    assert height[semantic > 1].min() > -5e-3


def test_the_main_object_is_large_and_central(views: dict[str, Tensor]) -> None:
    main = (views["instance"][:, 0] == 1).double()
    share = main.mean((1, 2))
    assert share.min() > 0.03
    assert 0.1 < share.mean() < 0.5
    for number in range(2, OBJECTS + 1):
        assert ((views["instance"][:, 0] == number).double().mean((1, 2)) < share).all()
    column = (main * torch.arange(SIZE)).sum((1, 2)) / main.sum((1, 2)) / SIZE
    assert (column - 0.5).abs().max() < 0.3


def test_objects_stand_on_the_ground_and_apart(scenes: Stage) -> None:
    for frame in (scenes, moved(scenes)):
        objects = frame.objects
        x, y, z = objects.centre
        assert (z <= objects.reach + 1e-5).all()
        for i in range(OBJECTS):
            for j in range(i):
                gap = torch.hypot(x[:, i] - x[:, j], y[:, i] - y[:, j]) - objects.reach[:, i] - objects.reach[:, j]
                assert gap[objects.present[:, i]].min() > -0.1  # the spheres around them, wider than they are


def test_flow_is_where_rigid_motion_takes_each_point(scenes: Stage, views: dict[str, Tensor]) -> None:
    """Through the moved object's own axes, in float64; the renderer turns points about a centre."""
    surface = first_surface(scenes, camera_rays(scenes.camera, SIZE))
    after, scene = moved(scenes), surface.thing // OBJECTS
    at_hits = {
        (name, frame): getattr(stage.objects, name).flatten(-2)[..., surface.thing].double()
        for name in ("turn", "centre")
        for frame, stage in (("before", scenes), ("after", after))
    }
    own = apply(at_hits["turn", "before"].transpose(0, 1), surface.point.double() - at_hits["centre", "before"])
    point = apply(at_hits["turn", "after"], own) + at_hits["centre", "after"]
    eye, axes = (part[..., scene, 0].double() for part in (after.camera.eye, after.camera.axes))
    right, down, ahead = apply(axes, point - eye)
    field = after.camera.field[scene, 0].double()
    pixel = surface.ray % SIZE**2
    expected = torch.stack(
        [
            (right / (ahead * field) + 1) * SIZE / 2 - (pixel % SIZE + 0.5),
            (down / (ahead * field) + 1) * SIZE / 2 - (pixel // SIZE + 0.5),
        ]
    )
    found = views["flow"].permute(1, 0, 2, 3).reshape(2, -1)[:, surface.ray].double()
    assert (found - expected).abs().max() < 2e-3


def test_the_ground_flows_with_the_camera(scenes: Stage, views: dict[str, Tensor]) -> None:
    floor = scenes.camera.eye + camera_rays(scenes.camera, SIZE) * views["depth"].view(60, -1)
    column, row, _ = project(scenes.motion.camera, floor, SIZE)
    middle = torch.arange(SIZE) + 0.5
    expected = torch.stack([column - middle.repeat(SIZE), row - middle.repeat_interleave(SIZE)], 1)
    ground = (views["semantic"] == 1).view(60, 1, -1).expand(-1, 2, -1)
    torch.testing.assert_close(views["flow"].view(60, 2, -1)[ground], expected[ground], atol=1e-3, rtol=0)


def test_the_second_frame_looks_like_the_first_along_the_flow(views: dict[str, Tensor]) -> None:
    middle = torch.arange(SIZE) + 0.5
    target = torch.stack(torch.meshgrid(middle, middle, indexing="xy")) + views["flow"]
    grid = (target * (2 / SIZE) - 1).permute(0, 2, 3, 1)
    warped = torch.nn.functional.grid_sample(views["rgb2"].float(), grid, align_corners=False, padding_mode="border")
    first = views["rgb"].float()
    inside = ((grid.abs() < 1).all(-1))[:, None].expand_as(first)
    followed = (warped - first).abs()[inside].median()
    stayed = (views["rgb2"].float() - first).abs()[inside]
    assert followed < 3
    assert (warped - first).abs()[inside].mean() < 0.6 * stayed.mean()


def test_only_what_is_asked_for_is_made(scenes: Stage) -> None:
    assert list(render(scenes, 8, ("depth",))) == ["depth"]
