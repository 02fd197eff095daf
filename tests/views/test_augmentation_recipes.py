"""The named recipes have the papers' numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from torch import Tensor

from manyview.views import AUGMENTATIONS, CIFAR, IMAGENET, Modality, ViewPipeline
from manyview.views.augmentation_recipes import usual_augmentation, usual_size
from manyview.views.colour import gaussian
from tests.views.oracle import oracle, pictures


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_named_recipe_is_torchvisions_with_its_numbers(name: str) -> None:
    pipeline = AUGMENTATIONS[name](32) if name != "patches" else AUGMENTATIONS[name](32, distance=16)
    pipeline = ViewPipeline(pipeline.augmentations)  # ImageNet's mean and std, as the oracle has
    images, ids = pictures(10, 48, 64), torch.arange(10)
    views = pipeline({"image": images}, ids)["image"]
    for k, (view, augmentation) in enumerate(zip(views, pipeline.augmentations, strict=True)):
        params = pipeline.params("image", ids, k, 0, 0, (48, 64))
        assert view.shape == (10, 3, augmentation.size, augmentation.size)
        if augmentation.scale is None:
            middle = tv.center_crop(tv.resize(images.float() / 255, [augmentation.resize], antialias=True), [32, 32])
            torch.testing.assert_close(view, tv.normalize(middle, *IMAGENET), atol=1e-4, rtol=0)
            continue
        for row in range(10):
            off = (view[row] - oracle(images[row], augmentation, params, row)).abs().amax(0) > 1e-4
            assert off.sum() <= (2 if params.solarise[row] else 0)


STATISTICS = {  # CACR's Algorithm 1, but the first
    "imagenet": IMAGENET,
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "stl10": ((0.4409, 0.4279, 0.3868), (0.2683, 0.2610, 0.2687)),
}


@pytest.mark.parametrize("name", ["simclr", "cacr-cifar", "cacr-stl", "custom"])
def test_pictures_are_normalised_with_the_statistics_asked_for(name: str) -> None:
    images, ids = pictures(4), torch.arange(4)
    plain = ViewPipeline(AUGMENTATIONS[name](24).augmentations, picture=Modality(colour=True))({"image": images}, ids)[
        "image"
    ]
    for statistics, (mean, std) in STATISTICS.items():
        views = AUGMENTATIONS[name](24, statistics=statistics)({"image": images}, ids)["image"]
        for view, bare in zip(views, plain, strict=True):
            torch.testing.assert_close(view, tv.normalize(bare, list(mean), list(std)), atol=1e-5, rtol=0)


def test_statistics_that_are_not_there_are_named_and_without_any_a_recipe_has_its_usual_ones() -> None:
    usual = {"simclr": "imagenet", "cacr-cifar": "cifar10", "cacr-stl": "stl10", "custom": "imagenet"}
    for name, statistics in usual.items():
        picture = AUGMENTATIONS[name](24).picture
        assert (picture.mean, picture.std) == STATISTICS[statistics]
        with pytest.raises(ValueError, match="statistics: there are none named 'mnist'; give imagenet, cifar10, "):
            AUGMENTATIONS[name](24, statistics="mnist")


def test_named_recipes_have_the_copies_and_sizes_asked_for() -> None:
    assert len(AUGMENTATIONS["moco-v2"](224, 6)) == 6
    assert [augmentation.size for augmentation in AUGMENTATIONS["custom"](32, 3).augmentations] == [32, 32, 32]
    assert [augmentation.blur for augmentation in AUGMENTATIONS["moco-v3"](32).augmentations] == [1.0, 0.1]
    assert AUGMENTATIONS["simclr-cifar"]().picture.mean == CIFAR[0]
    assert AUGMENTATIONS["probe-test"](224).augmentations[0].resize == 256
    assert AUGMENTATIONS["probe-test"](32).augmentations[0].resize == 32
    assert [each.scale for each in AUGMENTATIONS["swav"](32).augmentations] == [(0.14, 1.0)] * 2


def test_views_are_as_large_as_pictures_within_bounds_and_a_multiple_of_32() -> None:
    assert [usual_size(side) for side in (8, 32, 50, 96, 500)] == [32, 32, 64, 96, 128]
    assert usual_size(500, largest=224) == 224


def test_small_views_are_not_blurred() -> None:
    for size in (32, 64, 96):
        blurred = any(each.blur for each in AUGMENTATIONS[usual_augmentation(size)](size).augmentations)
        assert blurred == (size > 64)


def test_crops_of_small_views_are_large() -> None:
    assert [AUGMENTATIONS["cmc"](size).augmentations[0].scale for size in (32, 64, 224)] == [
        (0.4, 1),
        (0.08, 1),
        (0.08, 1),
    ]
    assert AUGMENTATIONS["cmc"](32, smallest=0.08).augmentations[0].scale == (0.08, 1)


def test_several_views_are_cropped_and_flipped_alone() -> None:
    for size in (32, 96):
        (one,) = set(AUGMENTATIONS[usual_augmentation(size, views=2)](size).augmentations)
        assert one.grey == one.blur == one.solarise == 0
        assert not any(one.jitter)


def placed(height: int, width: int, count: int) -> Tensor:
    """Pictures of floats whose pixels say where they are: x and y."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([columns, rows]).float().expand(count, 2, height, width)


@pytest.mark.parametrize("distance", [0, 24, 40])
def test_patches_lie_exactly_the_distance_apart(distance: int) -> None:
    images, ids = placed(150, 90, 200), torch.arange(200)
    pipeline = AUGMENTATIONS["patches"](16, 3 if distance < 40 else 2, distance=distance)
    first, *others = pipeline({"where": images}, ids)["where"]
    inside = placed(16, 16, 200)
    assert torch.equal(first - first[:, :, :1, :1], inside)  # neither flipped nor resized
    for number, other in enumerate(others, start=1):
        assert torch.equal(other, first + number * distance)
    x, y = first[:, :, 0, 0].T
    room = 16 + len(others) * distance
    assert x.min() >= 0
    assert y.min() >= 0
    assert x.max() <= 90 - room
    assert y.max() <= 150 - room
    assert x.max() - x.min() > 0.9 * (90 - room)
    assert not torch.equal(first, pipeline({"where": images}, ids, epoch=1)["where"][0])


def test_a_worker_cuts_the_same_patches_of_pictures_as_a_batch() -> None:
    images, ids = pictures(6, 60, 70), torch.arange(6)
    pipeline = AUGMENTATIONS["patches"](16, 2, distance=20)
    whole = pipeline({"image": images}, ids)["image"]
    ones = [pipeline.prepare({"image": images[i]}, i)["image"] for i in range(6)]
    finished = pipeline.finish({"image": [torch.stack(copy) for copy in zip(*ones, strict=True)]}, ids)["image"]
    for a, b in zip(finished, whole, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def test_pictures_that_are_too_small_for_the_distance_are_named() -> None:
    pipeline, images = AUGMENTATIONS["patches"](16, 2, distance=48), pictures(2)
    reason = "distance: patches of 16 pixels up to 48 apart need pictures of 64 x 64, got 36 x 40"
    with pytest.raises(ValueError, match=reason):
        pipeline({"image": images}, torch.arange(2))
    with pytest.raises(ValueError, match=reason):
        pipeline.prepare({"image": images[0]}, 0)


@pytest.mark.parametrize("name", ["moco-v2", "moco-v3", "cmc-ra", "swav"])
def test_a_blur_that_its_source_does_not_cut_is_as_wide_at_every_size(name: str) -> None:
    for size in (32, 96, 224, 448):
        *_, augmentation = AUGMENTATIONS[name](size).augmentations
        reach = gaussian(np.array([augmentation.sigma[1]]), augmentation.blur_kernel // 2).shape[1] - 1
        assert reach == 10  # five sigmas, beyond which a weight is under 4e-6 of the middle one
    assert AUGMENTATIONS["simclr"](96).augmentations[0].blur_kernel == 9  # a tenth, as its source has it


def test_simclr_cifar_takes_the_statistics_that_are_named() -> None:
    assert AUGMENTATIONS["simclr-cifar"](32).picture.std == CIFAR[1]
    assert AUGMENTATIONS["simclr-cifar"](32, statistics="cifar10").picture.std == (0.2023, 0.1994, 0.2010)
