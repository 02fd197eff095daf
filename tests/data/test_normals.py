"""Surface normals from depth: against planes whose normals are known, and a loop in float64."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.core.errors import UserError
from manyview.data.dataset import Dataset
from manyview.data.factory import open_data
from manyview.data.normals import WithNormals, camera_of, normals_of, usual_camera
from manyview.data.paired import Paired
from manyview.data.scenes.dataset import Scenes
from manyview.data.selection import missing, subset
from tests.data.fakes import Memory

CAMERA = (30.0, 25.0, 5.5, 4.0)


def looped(depth: torch.Tensor, camera: tuple[float, float, float, float]) -> torch.Tensor:
    """Pixel by pixel in float64, by hand."""
    fx, fy, cx, cy = camera
    height, width = depth.shape[1:]
    z = depth[0].double()

    def seen(v: int, u: int) -> bool:
        return 0 <= v < height and 0 <= u < width and math.isfinite(float(z[v, u])) and float(z[v, u]) > 0

    def point(v: int, u: int) -> np.ndarray:
        return np.array([(u - cx) / fx, (v - cy) / fy, 1.0]) * float(z[v, u])

    def slope(v: int, u: int, dv: int, du: int) -> np.ndarray | None:
        steps = []
        if seen(v + dv, u + du):
            steps.append(point(v + dv, u + du) - point(v, u))
        if seen(v - dv, u - du):
            steps.append(point(v, u) - point(v - dv, u - du))
        return sum(steps) / len(steps) if steps else None

    found = torch.full((3, height, width), torch.nan, dtype=torch.float64)
    for v in range(height):
        for u in range(width):
            down, right = (slope(v, u, 1, 0), slope(v, u, 0, 1)) if seen(v, u) else (None, None)
            if down is not None and right is not None:
                normal = np.cross(down, right)
                normal /= np.linalg.norm(normal)
                normal *= -np.sign(normal @ point(v, u))
                found[:, v, u] = torch.from_numpy(normal)
    return found


def test_normals_are_those_of_the_loop() -> None:
    depth = 2 + torch.rand(1, 9, 12, generator=torch.Generator().manual_seed(0))
    depth[0, 3, 4], depth[0, 0, 0], depth[0, 7, 5:8], depth[0, 6, 6] = torch.nan, 0, -1, torch.inf
    torch.testing.assert_close(
        normals_of(depth, CAMERA).double(), looped(depth, CAMERA), rtol=0, atol=1e-5, equal_nan=True
    )


@pytest.mark.parametrize("normal", [(0.0, 0.0, -1.0), (0.6, 0.0, -0.8), (0.0, -0.8, -0.6), (-0.3, 0.5, -0.9)])
def test_the_normal_of_a_plane_is_the_planes(normal: tuple[float, float, float]) -> None:
    fx, fy, cx, cy = CAMERA
    unit = torch.tensor(normal) / torch.tensor(normal).norm()
    u, v = torch.arange(12.0), torch.arange(9.0)
    rays = torch.stack([((u - cx) / fx).expand(9, 12), ((v - cy) / fy)[:, None].expand(9, 12), torch.ones(9, 12)])
    depth = (-3 / (unit[:, None, None] * rays).sum(0))[None]  # where n . P = -3
    assert (depth > 0).all()
    found = normals_of(depth, CAMERA)
    torch.testing.assert_close(found, unit[:, None, None].expand(3, 9, 12), rtol=0, atol=1e-4)
    torch.testing.assert_close(normals_of(1000 * depth, CAMERA), found, rtol=0, atol=1e-4)  # millimetres


def test_the_ground_of_a_scene_points_up_as_its_own_normals_do() -> None:
    sample = Scenes(1, size=64, modalities=("depth", "normals"))[0].modalities
    exact, made = sample["normals"], normals_of(sample["depth"])
    ground = (exact[1] < -0.8)[None].expand(3, -1, -1) & made.isfinite()
    assert ground.any()
    assert made[1][ground[1]].median() < -0.8


def test_without_a_camera_it_sees_60_degrees() -> None:
    fx, fy, cx, cy = usual_camera(480, 640)
    assert (cx, cy) == (319.5, 239.5)
    assert fx == fy
    assert math.degrees(2 * math.atan(320 / fx)) == pytest.approx(60)


@pytest.fixture
def rooms(tmp_path: Path) -> Path:
    for number in range(3):
        for folder, values in (("rgb", np.zeros((6, 8, 3), np.uint8)), ("depth_mm", np.full((6, 8), 900, np.uint16))):
            (tmp_path / folder).mkdir(exist_ok=True)
            if (folder, number) != ("depth_mm", 1):
                Image.fromarray(values).save(tmp_path / folder / f"{number}.png")
    return tmp_path


def test_a_data_set_has_them_beside_its_own_modalities(rooms: Path) -> None:
    data = WithNormals(Paired(rooms), CAMERA)
    assert isinstance(data, Dataset)
    assert data.modalities == ("rgb", "depth_mm", "normals")
    assert data[0].modalities["normals"].shape == (3, 6, 8)
    assert list(data.sample(0, ("normals",)).modalities) == ["normals"]
    assert list(data[1].modalities) == ["rgb"]
    assert missing(subset(data, [0, 1])) == {"depth_mm": 1, "normals": 1}


def test_they_are_opened_by_name(rooms: Path) -> None:
    data = open_data(rooms, modalities=("normals", "rgb"), camera=CAMERA)
    assert data.modalities == ("normals", "rgb")
    torch.testing.assert_close(data[0].modalities["normals"].amin((1, 2)), torch.tensor([0.0, 0.0, -1.0]))
    assert camera_of(data) == "a camera with fx 30, fy 25, cx 5.5, cy 4"
    assert "60 degrees" in str(camera_of(open_data(rooms, modalities=("rgb", "normals"))))
    assert camera_of(Paired(rooms)) is None
    assert open_data(rooms, modalities=("rgb", "normals"), nodata=900.0)[0].modalities["normals"].isnan().all()


def test_normals_that_are_there_are_not_made(rooms: Path) -> None:
    (rooms / "normals").mkdir()
    Image.new("RGB", (8, 6), (128, 128, 0)).save(rooms / "normals" / "0.png")
    assert open_data(rooms, modalities=("rgb", "normals"))[0].modalities["normals"].dtype == torch.uint8


def test_a_camera_without_focal_length_is_refused(rooms: Path) -> None:
    with pytest.raises(UserError, match="camera: expected focal lengths above 0, got 0 and 1"):
        open_data(rooms, modalities=("rgb", "normals"), camera=(0, 1, 2, 3))


def test_without_depth_one_line_says_so() -> None:
    with pytest.raises(UserError, match="no 'normals', and no 'depth' to make them of; it has image"):
        WithNormals(Memory(2, 2))
