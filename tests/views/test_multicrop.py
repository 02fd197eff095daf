"""Small crops beside large ones."""

from __future__ import annotations

import pytest
import torch

from manyview.views import AUGMENTATIONS, ViewPipeline
from manyview.views.multicrop import usual_small_size, with_small
from tests.views.oracle import oracle, pictures

IDS = torch.arange(10)


def test_small_crops_come_last_and_the_large_ones_stay_as_they_were_to_the_bit() -> None:
    images = {"image": pictures(10, 48, 64)}
    alone = AUGMENTATIONS["moco-v3"](32)
    large = alone(images, IDS, seed=3, epoch=2)["image"]
    for count in (1, 4):
        made = with_small(alone, count, 16)(images, IDS, seed=3, epoch=2)["image"]
        assert [copy.shape[-1] for copy in made] == [32, 32] + [16] * count
        assert all(torch.equal(copy, same) for copy, same in zip(made, large, strict=False))
        assert len({float(copy.sum()) for copy in made[2:]}) == count, "each small crop is drawn for itself"


def test_a_worker_makes_the_same_crops_of_one_picture_as_of_a_batch() -> None:
    images, pipeline = pictures(3, 48, 64), with_small(AUGMENTATIONS["moco-v3"](32), 2, 16)
    whole = pipeline({"image": images}, IDS[:3])["image"]
    each = [pipeline.prepare({"image": image}, number)["image"] for number, image in enumerate(images)]
    stacked = {"image": [torch.stack(copy) for copy in zip(*each, strict=True)]}
    finished = pipeline.finish(stacked, IDS[:3])["image"]
    for copy, same in zip(finished, whole, strict=True):  # a worker rounds to 1 / 255, of a std of about 1 / 4
        assert float((copy - same).abs().mean()) < 0.02


def test_a_small_crop_is_torchvisions_with_its_own_size_scale_and_blur() -> None:
    made = with_small(AUGMENTATIONS["moco-v3"](32), 2, 16, (0.05, 0.14), 0.5)
    small = made.augmentations[-1]
    assert (small.size, small.scale, small.blur, small.solarise) == (16, (0.05, 0.14), 0.5, 0.0)
    assert with_small(AUGMENTATIONS["moco-v3"](32), 1, 16).augmentations[-1].blur == 1.0, "as the first copy"
    images, plain = pictures(10, 48, 64), ViewPipeline(made.augmentations)
    params = plain.params("image", IDS, 3, 0, 0, (48, 64))
    view = plain({"image": images}, IDS)["image"][3]
    for row in range(10):
        torch.testing.assert_close(view[row], oracle(images[row], small, params, row), atol=1e-4, rtol=0)
    assert (params.box[:, 2] * params.box[:, 3]).max() <= 0.16 * 48 * 64


def test_small_crops_of_no_size_or_scale_are_refused() -> None:
    with pytest.raises(ValueError, match="size: expected a whole number"):
        with_small(AUGMENTATIONS["swav"](32), 2, 0)
    with pytest.raises(ValueError, match="scale: expected shares"):
        with_small(AUGMENTATIONS["swav"](32), 2, 16, (0.4, 0.05))


def test_where_nobody_says_small_crops_are_as_small_as_96_of_224_pixels() -> None:
    assert [usual_small_size(size) for size in (224, 128, 64, 32, 8)] == [96, 56, 24, 16, 8]
