"""RandAugment's operations beside torchvision's functions on floats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from manyview.views import Augmentation, ViewPipeline
from manyview.views.augmentation import RANDOM_OPERATIONS
from manyview.views.rand_augment import OPERATIONS
from tests.views.oracle import pictures, randomly

LEVELS = np.array([1.0, -1.0, 0.35, -0.8, 0.0], np.float32)


@pytest.mark.parametrize("number", range(RANDOM_OPERATIONS))
def test_an_operation_is_that_of_torchvision(number: int) -> None:
    images = pictures(5, 40, 20).float() / 255
    images[0, 1] = 0.3  # a channel of one value
    planes = images.transpose(0, 1).contiguous()
    OPERATIONS[number](planes, LEVELS)
    for row, level in enumerate(LEVELS.tolist()):
        torch.testing.assert_close(planes[:, row], randomly(number, images[row], level), atol=1e-4, rtol=0)


def test_there_are_as_many_operations_as_are_drawn() -> None:
    assert len(OPERATIONS) == RANDOM_OPERATIONS


def test_each_operation_comes_as_often_and_half_are_skipped() -> None:
    pipeline = ViewPipeline([Augmentation(16, operations=2)])
    params = pipeline.params("image", torch.arange(8000), 0, 0, 0, (20, 20))
    assert (params.operation[:, 2:] == -1).all()
    drawn = params.operation[:, :2]
    assert (drawn == -1).mean() == pytest.approx(0.5, abs=0.02)
    for number in range(RANDOM_OPERATIONS):
        assert (drawn == number).mean() == pytest.approx(1 / 16, abs=0.01)
    size = abs(params.level)
    assert (params.level > 0).mean() == pytest.approx(0.5, abs=0.02)
    assert (size == 1).mean() == pytest.approx(0.5, abs=0.02)  # noise that is cut off
    assert (1 - size[size < 1]).mean() == pytest.approx(0.05 * math.sqrt(2 / math.pi), abs=0.002)


def test_what_else_is_drawn_does_not_depend_on_it() -> None:
    images, ids = {"image": pictures(40)}, torch.arange(40)
    none, some = (ViewPipeline([Augmentation(24, jitter=(0.4,) * 4, operations=k)]) for k in (0, 2))
    before, params = (pipeline.params("image", ids, 0, 0, 0, (40, 36)) for pipeline in (none, some))
    assert all(np.array_equal(a, b) for a, b in zip(before[:-2], params[:-2], strict=True))
    still = torch.from_numpy(params.operation <= 0).all(1)
    assert 0 < still.sum() < 40
    a, b = (pipeline(images, ids)["image"][0] for pipeline in (none, some))
    assert torch.equal(a[still], b[still])
    moved = torch.from_numpy(params.operation >= 2).any(1)
    assert not any(torch.equal(x, y) for x, y in zip(a[moved], b[moved], strict=True))


@pytest.mark.parametrize("size", [24, 23])
def test_a_picture_does_not_depend_on_its_batch(size: int) -> None:
    images, ids = pictures(), torch.arange(12)
    pipeline = ViewPipeline([Augmentation(size, jitter=(0.4, 0.4, 0.4, 0.1), operations=4, magnitude=8)] * 2)
    whole, rows = pipeline({"image": images}, ids)["image"], torch.tensor([7, 2, 9])
    some = pipeline({"image": images[rows]}, ids[rows])["image"]
    assert all(torch.equal(a[rows], b) for a, b in zip(whole, some, strict=True))
    alone = [pipeline.prepare({"image": images[i]}, i)["image"] for i in range(12)]
    prepared = [torch.stack([copies[k] for copies in alone]) for k in range(2)]
    for a, b in zip(pipeline.finish({"image": prepared}, ids)["image"], whole, strict=True):
        assert ((a - b).abs() * 0.229 * 255).median() <= 1


def test_numbers_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="operations: expected 0 to 4"):
        Augmentation(16, operations=5)
    with pytest.raises(ValueError, match="magnitude: expected that of RandAugment's operations, 0 to 10"):
        Augmentation(16, operations=1, magnitude=11)
