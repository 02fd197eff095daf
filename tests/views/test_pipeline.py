"""A stack: one call makes all views, each as torchvision would with the same numbers."""

from __future__ import annotations

import pytest
import torch
import torchvision.transforms.functional as tv
from torch import Tensor

from manyview.views import AUGMENTATIONS, CIFAR, IMAGENET, Augmentation, Modality, ViewPipeline
from manyview.views.augmentation import AugmentationParams
from manyview.views.colour import _TURNS

EVERYTHING = Augmentation(
    24, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.2), jitter_p=0.8, grey=0.3, blur=0.5, kernel=5, solarise=0.3
)
OPERATIONS = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


def pictures(n: int = 12, height: int = 40, width: int = 36, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 3, height, width), generator=generator, dtype=torch.uint8)


def oracle(image: Tensor, look: Augmentation, drawn: AugmentationParams, row: int) -> Tensor:
    """One view of one picture by torchvision's functions on floats."""
    view = image.float() / 255
    if look.scale is not None:
        view = tv.resized_crop(view, *drawn.box[row].tolist(), [look.size] * 2, antialias=True)
    view = tv.hflip(view) if drawn.flip[row] else view
    if look.grey_first and drawn.grey[row]:
        view = tv.rgb_to_grayscale(view, 3)
    for operation in _TURNS[drawn.order[row]].tolist():
        if operation >= 0 and look.jitter[operation]:
            view = OPERATIONS[operation](view, drawn.colour[row, operation].item())
    if not look.grey_first and drawn.grey[row]:
        view = tv.rgb_to_grayscale(view, 3)
    if drawn.sigma[row] > 0:
        view = tv.gaussian_blur(view, [look.blur_kernel] * 2, [drawn.sigma[row].item()] * 2)
    if drawn.solarise[row]:
        view = tv.solarize(view, 0.5)
    normalised: Tensor = tv.normalize(view, *(list(each) for each in IMAGENET))
    return normalised


@pytest.mark.parametrize("grey_first", [False, True])
def test_every_view_of_a_batch_is_torchvisions(grey_first: bool) -> None:
    look = Augmentation(**{**EVERYTHING.__dict__, "grey_first": grey_first})
    images, ids, stack = pictures(40), torch.arange(40) * 7, ViewPipeline([look] * 3)
    views = stack({"image": images}, ids, seed=5, epoch=2)["image"]
    assert len(views) == 3
    for k, view in enumerate(views):
        numbers = stack._drawn("image", ids, k, 5, 2, images.shape[2:])
        for row in range(40):
            wanted = oracle(images[row], look, numbers, row)
            wrong = (view[row] - wanted).abs().amax(0) > 1e-4
            # a pixel at one half may be solarised on one side only
            assert wrong.sum() <= (2 if numbers.solarise[row] else 0)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_named_stack_is_torchvisions_with_its_numbers(name: str) -> None:
    stack = AUGMENTATIONS[name](32)
    stack = ViewPipeline(stack.looks)  # ImageNet's mean and deviation, as the oracle has
    images, ids = pictures(10, 48, 64), torch.arange(10)
    views = stack({"image": images}, ids)["image"]
    for k, (view, look) in enumerate(zip(views, stack.looks, strict=True)):
        drawn = stack._drawn("image", ids, k, 0, 0, (48, 64))
        assert view.shape == (10, 3, look.size, look.size)
        if look.scale is None:
            middle = tv.center_crop(tv.resize(images.float() / 255, [look.resize], antialias=True), [32, 32])
            torch.testing.assert_close(view, tv.normalize(middle, *IMAGENET), atol=1e-4, rtol=0)
            continue
        for row in range(10):
            off = (view[row] - oracle(images[row], look, drawn, row)).abs().amax(0) > 1e-4
            assert off.sum() <= (2 if drawn.solarise[row] else 0)


STATISTICS = {  # CACR's Algorithm 1, but the first
    "imagenet": IMAGENET,
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "stl10": ((0.4409, 0.4279, 0.3868), (0.2683, 0.2610, 0.2687)),
}


@pytest.mark.parametrize("name", ["simclr", "cacr-cifar", "cacr-stl"])
def test_pictures_are_normalised_with_the_statistics_asked_for(name: str) -> None:
    images, ids = pictures(4), torch.arange(4)
    plain = ViewPipeline(AUGMENTATIONS[name](24).looks, picture=Modality(colour=True))({"image": images}, ids)["image"]
    for statistics, (mean, std) in STATISTICS.items():
        views = AUGMENTATIONS[name](24, statistics=statistics)({"image": images}, ids)["image"]
        for view, bare in zip(views, plain, strict=True):
            torch.testing.assert_close(view, tv.normalize(bare, list(mean), list(std)), atol=1e-5, rtol=0)


def test_statistics_that_are_not_there_are_named_and_without_any_a_stack_has_its_usual_ones() -> None:
    usual = {"simclr": "imagenet", "cacr-cifar": "cifar10", "cacr-stl": "stl10"}
    for name, statistics in usual.items():
        picture = AUGMENTATIONS[name](24).picture
        assert (picture.mean, picture.std) == STATISTICS[statistics]
        with pytest.raises(ValueError, match="statistics: there are none named 'mnist'; give imagenet, cifar10, "):
            AUGMENTATIONS[name](24, statistics="mnist")


def test_a_view_depends_on_seed_epoch_and_id_only() -> None:
    images, ids, stack = pictures(), torch.arange(100, 112), ViewPipeline([EVERYTHING] * 2)
    whole = stack({"image": images}, ids, seed=1, epoch=3)["image"]
    some = torch.tensor([7, 2, 9])
    again = stack({"image": images[some]}, ids[some], seed=1, epoch=3)["image"]
    for a, b in zip(whole, again, strict=True):
        assert torch.equal(a[some], b)  # to the bit: one process and two see the same
    for change in ({"seed": 2, "epoch": 3}, {"seed": 1, "epoch": 4}):
        assert not torch.allclose(whole[0], stack({"image": images}, ids, **change)["image"][0])
    assert not torch.allclose(whole[0], stack({"image": images}, ids + 1, seed=1, epoch=3)["image"][0])
    assert not torch.allclose(whole[0], whole[1])


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_makes_the_views_that_a_batch_makes(late: bool) -> None:
    """To 2 of 255 steps for the rounding of the crop, more where colours stretch it."""
    images, ids, stack = pictures(), torch.arange(12), ViewPipeline([EVERYTHING] * 2)
    one_by_one = [stack.prepare({"image": images[i]}, i, colour=not late)["image"] for i in range(12)]
    prepared = [torch.stack([looks[k] for looks in one_by_one]) for k in range(2)]
    assert all(crops.dtype == torch.uint8 for crops in prepared)
    finished = stack.finish({"image": prepared}, ids, colour=late)["image"]
    for a, b in zip(finished, stack({"image": images}, ids)["image"], strict=True):
        off = (a - b).abs() * torch.tensor(IMAGENET[1]).view(3, 1, 1) * 255
        assert off.median() <= 1
        assert off.quantile(0.95) <= 6


def test_large_pictures_are_cut_one_by_one_to_the_same_views() -> None:
    look = Augmentation(64, (0.2, 1.0))
    images = pictures(4, 150, 200)
    views = ViewPipeline([look])({"image": images}, torch.arange(4))["image"][0]
    drawn = ViewPipeline([look])._drawn("image", torch.arange(4), 0, 0, 0, (150, 200))
    for row in range(4):
        off = (views[row] - oracle(images[row], look, drawn, row)).abs() * 255 * 0.229
        assert off.max() <= 2


def test_sensors_share_crop_and_flip_but_not_colour() -> None:
    base = pictures(8, 40, 40)
    position = torch.arange(1600.0).view(1, 1, 40, 40).expand(8, 1, 40, 40).contiguous()
    raw = {"rgb": base, "again": base, "depth": position, "labels": base[:, :1]}
    modalities = {"labels": Modality(nearest=True), "depth": Modality((800.0,), (400.0,))}
    stack = ViewPipeline([EVERYTHING], modalities)
    ids = torch.arange(8)
    views = {name: looks[0] for name, looks in stack(raw, ids).items()}
    plain = ViewPipeline([Augmentation(24, (0.2, 1.0))], {name: Modality() for name in raw})(raw, ids)
    assert not torch.allclose(views["rgb"], views["again"])
    torch.testing.assert_close(plain["rgb"][0], plain["again"][0])
    drawn = stack._drawn("rgb", ids, 0, 0, 0, (40, 40))
    for row in range(8):
        wanted = tv.resized_crop(position[row], *drawn.box[row].tolist(), [24, 24], antialias=True)
        wanted = tv.hflip(wanted) if drawn.flip[row] else wanted
        torch.testing.assert_close(views["depth"][row], (wanted - 800) / 400, atol=1e-4, rtol=0)
    assert set(views["labels"].unique().tolist()) <= set(base.unique().float().tolist())


def test_a_sensor_of_another_resolution_shows_the_same_part() -> None:
    fine = torch.linspace(0, 1, 80).view(1, 1, 1, 80).expand(6, 1, 80, 80).contiguous()
    coarse = torch.linspace(0, 1, 40).view(1, 1, 1, 40).expand(6, 1, 40, 40).contiguous()
    views = ViewPipeline([Augmentation(16, (0.3, 1.0))])({"a": fine, "b": coarse}, torch.arange(6))
    torch.testing.assert_close(views["a"][0], views["b"][0], atol=0.04, rtol=0)


def test_views_are_floats_and_the_raw_pictures_stay() -> None:
    images = pictures()
    before = images.clone()
    view = ViewPipeline([EVERYTHING])({"image": images}, torch.arange(12))["image"][0]
    assert view.dtype == torch.float32
    assert view.is_contiguous()
    assert torch.equal(images, before)


def test_named_stacks_have_the_views_and_sizes_asked_for() -> None:
    assert len(AUGMENTATIONS["moco-v2"](224, 6)) == 6
    assert [look.size for look in AUGMENTATIONS["multicrop"](64, 5, small_size=32).looks] == [64, 64, 32, 32, 32]
    assert [look.size for look in AUGMENTATIONS["custom"](32, 3).looks] == [32, 32, 32]
    assert [look.size for look in AUGMENTATIONS["custom"](32, 3, small_size=16).looks] == [32, 16, 16]
    assert [look.size for look in AUGMENTATIONS["custom"](32, 3, small_size=16, large=2).looks] == [32, 32, 16]
    assert [look.blur for look in AUGMENTATIONS["moco-v3"](32).looks] == [1.0, 0.1]
    assert AUGMENTATIONS["simclr-cifar"]().picture.mean == CIFAR[0]
    assert AUGMENTATIONS["probe-test"](224).looks[0].resize == 256
    assert AUGMENTATIONS["probe-test"](32).looks[0].resize == 32
    with pytest.raises(ValueError, match="views=1"):
        AUGMENTATIONS["multicrop"](views=1)
    with pytest.raises(ValueError, match="large: expected at least one"):
        AUGMENTATIONS["custom"](small_size=16, large=0)


def test_a_view_that_is_called_a_mask_keeps_its_values() -> None:
    raw = {"rgb": pictures(4), "labels13": torch.randint(13, (4, 1, 40, 36), dtype=torch.uint8)}
    view = ViewPipeline([Augmentation(24, (0.2, 1.0))])(raw, torch.arange(4))["labels13"][0]
    assert set(view.unique().tolist()) <= set(range(13))


def test_a_hole_in_a_sensor_stays_a_hole() -> None:
    depth = torch.rand(2, 1, 40, 40)
    depth[0, 0, 10, 10] = float("nan")
    view = ViewPipeline([Augmentation(32, (0.5, 1.0))])({"depth": depth}, torch.arange(2))["depth"][0]
    assert 0 < view[0].isnan().float().mean() < 0.05
    assert not view[1].isnan().any()


def test_a_float_picture_in_colour_is_the_same_from_a_worker() -> None:
    picture = torch.rand(3, 20, 20)
    stack = ViewPipeline([Augmentation(16, jitter=(0.4,) * 4)], {"image": Modality(colour=True)})
    whole = stack({"image": picture[None]}, torch.tensor([3]))["image"][0]
    worker = stack.finish({"image": [stack.prepare({"image": picture}, 3)["image"][0][None]]}, torch.tensor([3]))
    torch.testing.assert_close(worker["image"][0], whole, atol=1e-6, rtol=0)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="has 2 pictures for 3 ids"):
        ViewPipeline([Augmentation(8)])({"image": pictures(2)}, torch.arange(3))
    with pytest.raises(ValueError, match="only pictures of 3"):
        ViewPipeline([Augmentation(8)], {"image": Modality(colour=True)})(
            {"image": pictures(2)[:, :1]}, torch.arange(2)
        )
    with pytest.raises(ValueError, match="its mean 2"):
        ViewPipeline([Augmentation(8)], {"image": Modality((0.0, 1.0), (1.0, 1.0))})(
            {"image": pictures(2)}, torch.arange(2)
        )
    for wrong in ([], Augmentation(8), ["simclr"]):
        with pytest.raises(ValueError, match="give a list of Look"):
            ViewPipeline(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="std"):
        Modality((0.5,), (0.0,))
