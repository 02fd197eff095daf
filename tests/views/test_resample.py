"""One resampling equals torchvision's crop, resize and flip, in both ways."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from torch import Tensor
from torchvision.transforms import InterpolationMode

from manyview.views.augmentation import Augmentation
from manyview.views.resample import crop_batch, crop_one

BOXES = [[0, 0, 40, 56], [3, 5, 17, 9], [39, 55, 1, 1], [10, 0, 30, 56], [0, 20, 40, 30]]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(5, 3, 40, 56, generator=torch.Generator().manual_seed(2))


def expected(image: Tensor, box: list[int], size: int, flip: bool) -> Tensor:
    view: Tensor = tv.resized_crop(image, *box, [size, size], InterpolationMode.BILINEAR, antialias=True)
    return view.flip(-1) if flip else view


@pytest.mark.parametrize("size", [8, 32, 64])
def test_crop_resize_and_flip_of_a_batch_are_torchvisions(size: int, images: Tensor) -> None:
    flips = np.array([False, True, True, False, True])
    planes = crop_batch(images, Augmentation(size), np.array(BOXES), flips)
    for row, box in enumerate(BOXES):
        torch.testing.assert_close(
            planes[:, row], expected(images[row], box, size, bool(flips[row])), atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("size", [8, 32, 64])
def test_crop_resize_and_flip_of_one_picture_are_torchvisions(size: int, images: Tensor) -> None:
    picture = (255 * images).to(torch.uint8)
    for row, box in enumerate(BOXES):
        view = crop_one(picture[row], Augmentation(size), np.array(box), row % 2 == 1)
        assert view.dtype == torch.uint8
        wanted = expected(picture[row], box, size, row % 2 == 1)
        torch.testing.assert_close(view.float(), wanted.float(), atol=1, rtol=0)  # torch rounds between the axes


@pytest.mark.parametrize(("resize", "size"), [(64, 56), (37, 32), (32, 32), (41, 24)])
@pytest.mark.parametrize("turned", [False, True])
def test_the_middle_is_torchvisions_resize_and_centre_crop(
    resize: int, size: int, turned: bool, images: Tensor
) -> None:
    images = images.transpose(2, 3).contiguous() if turned else images
    augmentation = Augmentation(size, scale=None, resize=resize, flip=0.0)
    whole = np.array([[0, 0, *images.shape[2:]]] * 5)
    planes = crop_batch(images, augmentation, whole, np.zeros(5, dtype=bool))
    wanted = tv.center_crop(tv.resize(images, [resize], antialias=True), [size, size])
    torch.testing.assert_close(planes.transpose(0, 1), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(crop_one(images[0], augmentation, whole[0], False), wanted[0], atol=1e-5, rtol=0)


def test_nearest_never_makes_a_value_that_was_not_there() -> None:
    labels = torch.tensor([0, 3, 7, 255], dtype=torch.uint8)[torch.randint(4, (1, 50, 50))]
    view = crop_one(labels, Augmentation(31), np.array([3, 4, 40, 33]), True, nearest=True)
    assert set(view.unique().tolist()) <= {0, 3, 7, 255}
