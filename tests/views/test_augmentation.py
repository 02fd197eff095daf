"""What is drawn has torchvision's distributions, and depends on the key alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision import transforms

from manyview.core.rng import key, uniform
from manyview.views.augmentation import (
    GEOMETRY,
    PHOTOMETRY,
    TRIES,
    Augmentation,
    crop_shapes,
    draw,
    random_box,
    random_boxes,
)

N = 20_000


def drawn(augmentation: Augmentation, height: int = 60, width: int = 80) -> dict[str, Tensor]:
    keys = key(1, 2, torch.arange(N))
    g, p = uniform(keys, GEOMETRY).numpy(), uniform(key(keys, 9), PHOTOMETRY).numpy()
    return {
        name: torch.from_numpy(column) for name, column in draw(augmentation, g, p, height, width)._asdict().items()
    }


def same_distribution(a: Tensor | np.ndarray, b: Tensor | np.ndarray) -> bool:
    """Kolmogorov and Smirnov's test of two samples at about one in a thousand."""
    a, b = np.sort(np.asarray(a, dtype=float)), np.sort(np.asarray(b, dtype=float))
    points = np.concatenate([a, b])
    gap = np.abs(np.searchsorted(a, points, "right") / len(a) - np.searchsorted(b, points, "right") / len(b)).max()
    return bool(gap < 1.95 * np.sqrt((len(a) + len(b)) / (len(a) * len(b))))


@pytest.mark.parametrize(
    ("scale", "height", "width"), [((0.08, 1.0), 60, 80), ((0.2, 1.0), 32, 32), ((0.9, 1.0), 20, 200)]
)
def test_boxes_are_those_of_random_resized_crop(scale: tuple[float, float], height: int, width: int) -> None:
    torch.manual_seed(0)
    image = torch.empty(3, height, width)
    ratio = [3 / 4, 4 / 3]
    theirs = torch.tensor(
        [transforms.RandomResizedCrop.get_params(image, list(scale), ratio) for _ in range(N)], dtype=torch.float
    )
    ours = drawn(Augmentation(32, scale), height, width)["box"]
    for column in range(4):
        assert same_distribution(ours[:, column], theirs[:, column])
    assert same_distribution(ours[:, 2] * ours[:, 3], theirs[:, 2] * theirs[:, 3])
    assert (ours[:, :2] >= 0).all()
    assert (ours[:, 0] + ours[:, 2] <= height).all()
    assert (ours[:, 1] + ours[:, 3] <= width).all()


@pytest.mark.parametrize(("height", "width"), [(60, 80), (375, 500), (20, 200), (3, 400), (1, 1)])
def test_the_box_of_one_picture_is_the_same_as_among_many(height: int, width: int) -> None:
    scale, ratio, u = (0.2, 1.0), (3 / 4, 4 / 3), uniform(key(4, torch.arange(500)), GEOMETRY).numpy()
    many = random_boxes(u, height, width, scale, ratio)
    share, aspect = crop_shapes(u, scale, ratio)
    for row in range(len(u)):
        shapes = zip(share[row].tolist(), aspect[row].tolist(), strict=True)
        one = random_box(shapes, u[row, 2 * TRIES : 2 * TRIES + 2].tolist(), height, width, ratio)
        assert one == tuple(many[row].tolist())


def test_factors_and_orders_are_those_of_color_jitter() -> None:
    torch.manual_seed(0)
    jitter = transforms.ColorJitter(0.4, 1.5, 0.8, 0.2)
    ranges = [jitter.brightness, jitter.contrast, jitter.saturation, jitter.hue]
    rows = [transforms.ColorJitter.get_params(*ranges) for _ in range(N)]
    ours = drawn(Augmentation(32, jitter=(0.4, 1.5, 0.8, 0.2)))
    for column in range(4):
        theirs = np.array([row[1 + column] for row in rows], dtype=float)
        assert same_distribution(ours["colour"][:, column], theirs)
    counts = torch.bincount(ours["order"], minlength=24)
    assert len(counts) == 24
    assert ((counts - N / 24).abs() < 5 * (N / 24) ** 0.5).all()


@pytest.mark.parametrize("chance", [0.0, 0.2, 1.0])
def test_chances_are_kept(chance: float) -> None:
    got = drawn(
        Augmentation(32, flip=chance, jitter=(0.1,) * 4, jitter_p=chance, grey=chance, blur=chance, solarise=chance)
    )
    for happened in (got["flip"], got["order"] >= 0, got["grey"], got["sigma"] > 0, got["solarise"]):
        assert abs(happened.double().mean().item() - chance) < 5 * (chance * (1 - chance) / N) ** 0.5 + 1e-9


def test_what_is_drawn_is_independent() -> None:
    got = drawn(Augmentation(32, jitter=(0.4,) * 4, jitter_p=0.5, grey=0.5, blur=0.5, solarise=0.5))
    columns = [got["flip"], got["order"] >= 0, got["grey"], got["sigma"] > 0, got["solarise"], *got["colour"].T]
    columns += list(got["box"].T)[:2]
    correlation = torch.corrcoef(torch.stack([column.double() for column in columns]))
    off = correlation - torch.diag(correlation.diag())
    off[-1, -2] = off[-2, -1] = 0  # top and left: both are small where the box is large
    assert off.abs().max() < 5 / N**0.5


def test_sigma_is_uniform() -> None:
    got = drawn(Augmentation(32, blur=1.0, sigma=(0.1, 2.0)))["sigma"]
    assert same_distribution(got, torch.linspace(0.1, 2.0, N))


def test_modalities_that_share_the_geometric_key_share_box_and_flip_only() -> None:
    keys = key(0, torch.arange(50))
    augmentation, geometry = Augmentation(32, jitter=(0.4,) * 4, blur=0.5), uniform(keys, GEOMETRY).numpy()
    a = draw(augmentation, geometry, uniform(key(keys, 1), PHOTOMETRY).numpy(), 64, 64)
    b = draw(augmentation, geometry, uniform(key(keys, 2), PHOTOMETRY).numpy(), 64, 64)
    assert (a.box == b.box).all()
    assert (a.flip == b.flip).all()
    assert (a.colour != b.colour).all()
    assert (a.sigma != b.sigma).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size: expected .*, got 0"),
        ({"flip": 1.5}, "flip: expected .*, got 1\\.5"),
        ({"size": 32.5}, "size: expected .*, got 32\\.5"),
        ({"scale": 0.5}, "scale: expected .*, got 0\\.5"),
        ({"jitter": (0.4,)}, "jitter: expected .*, got \\(0\\.4,\\)"),
        ({"scale": (0.5, 0.2)}, "scale: expected .*, got \\(0\\.5, 0\\.2\\)"),
        ({"ratio": (0, 1)}, "ratio: expected .*, got \\(0, 1\\)"),
        ({"jitter": (0.4, 0.4, 0.4, 0.6)}, "hue"),
        ({"sigma": (0, 1)}, "sigma: expected .*, got \\(0, 1\\)"),
        ({"kernel": 4}, "kernel: expected .*, got 4"),
        ({"resize": 40}, "resize: expected .*, got 40"),
    ],
)
def test_a_mistake_is_named(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Augmentation(**{"size": 32, **wrong})  # type: ignore[arg-type]


def test_the_kernel_of_the_blur_is_a_tenth_of_the_size_and_odd() -> None:
    assert [Augmentation(size).blur_kernel for size in (224, 96, 32)] == [23, 9, 3]
