from __future__ import annotations

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv

from manyview.views.blur import blur_, gaussian


@pytest.mark.parametrize("kernel", [3, 9, 23])
def test_the_blur_of_each_picture_is_torchvisions(kernel: int) -> None:
    sigma = np.array([0.1, 0.4, 1.0, 1.7, 2.0], np.float32)
    images = torch.rand(5, 3, 31, 40, generator=torch.Generator().manual_seed(1))
    planes = images.transpose(0, 1).contiguous()
    blur_(planes, sigma, kernel=kernel)
    for row, width in enumerate(sigma.tolist()):
        expected = tv.gaussian_blur(images[row], [kernel, kernel], [width, width])
        torch.testing.assert_close(planes[:, row], expected, atol=1e-5, rtol=0)


def test_what_is_left_out_beyond_five_sigmas_weighs_nothing() -> None:
    distance = np.arange(100)
    whole = np.exp(-0.5 * (distance / 2.0) ** 2)
    assert whole[11:].sum() / whole.sum() < 1e-6
    assert gaussian(np.array([2.0]), 40).shape == (1, 11)


def test_the_blur_of_a_picture_does_not_depend_on_its_neighbours() -> None:
    images = torch.rand(3, 4, 30, 30)
    together, alone = images.clone(), images[:, :1].clone()
    blur_(together, np.array([0.3, 0.5, 1.0, 2.0], np.float32), kernel=23)
    blur_(alone, np.array([0.3], np.float32), kernel=23)
    assert torch.equal(together[:, :1], alone)


def test_a_picture_smaller_than_the_kernel_is_still_blurred() -> None:
    planes = torch.rand(3, 1, 4, 4)
    before = planes.clone()
    blur_(planes, np.array([2.0], np.float32), kernel=23)
    assert planes.var() < before.var() / 2
    torch.testing.assert_close(planes.amax().clamp(max=before.amax()), planes.amax())
