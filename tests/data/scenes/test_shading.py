from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.rng import key
from manyview.data.scenes.shading import average, exposed, openness, pattern, picture
from manyview.data.scenes.stage import stage


def waves(*rows: tuple[float, float, float]) -> Tensor:
    return torch.tensor(rows).T


def test_patterns_are_what_they_are_called() -> None:
    low, high = waves((0.1, 0.1, 0.1), (0.1, 0.1, 0.6)), waves((0.5, 0.5, 0.5), (0.0, 0.0, 0.0))
    assert pattern(torch.tensor(0), low).tolist() == [0, 0]
    assert pattern(torch.tensor(1), low).tolist() == [1, 0]
    assert pattern(torch.tensor(2), low).tolist() == [1, 0]
    assert pattern(torch.tensor(3), high).tolist() == [1, 0]


def test_more_light_is_brighter_and_never_above_one() -> None:
    light = torch.linspace(0, 3, 50)
    assert (exposed(light).diff() >= 0).all()
    assert exposed(light).max() == 1
    assert exposed(torch.zeros(1)) == 0


def test_the_average_is_the_mean() -> None:
    rays = torch.arange(24.0).view(2, 4, 3)
    torch.testing.assert_close(average(rays), rays.mean(1))


def test_the_ground_is_darkest_at_an_object() -> None:
    scenes = stage(key(6, 0, torch.arange(20)))
    x, y = scenes.objects.centre[0][:, :1], scenes.objects.centre[1][:, :1]
    near = openness(scenes.objects, torch.stack([x, y, torch.zeros_like(x)]))
    far = openness(scenes.objects, torch.stack([x, y - 9, torch.zeros_like(x)]))
    assert (near < 0.6).all()
    assert (far > 0.95).all()


def test_pictures_are_neither_dark_nor_flat() -> None:
    pictures = picture(stage(key(7, 0, torch.arange(100))), 16).float()
    assert 60 < pictures.mean() < 190
    assert pictures.std((1, 2, 3)).min() > 8
