from __future__ import annotations

import pytest
import torch
import torchvision.transforms.functional as tv

from manyview.views.blur import blur_, gaussian


@pytest.mark.parametrize("kernel", [3, 9, 23])
def test_the_blur_of_each_picture_is_torchvisions(kernel: int) -> None:
    sigma = torch.tensor([0.1, 0.4, 1.0, 1.7, 2.0])
    images = torch.rand(5, 3, 31, 40, generator=torch.Generator().manual_seed(1))
    planes = images.transpose(0, 1).contiguous()
    blur_(planes, sigma, kernel=kernel)
    for row, width in enumerate(sigma.tolist()):
        expected = tv.gaussian_blur(images[row], [kernel, kernel], [width, width])
        torch.testing.assert_close(planes[:, row], expected, atol=1e-5, rtol=0)


def test_what_is_left_out_beyond_five_sigmas_weighs_nothing() -> None:
    whole = gaussian(torch.tensor([2.0]), 40)
    assert whole[0, 11:].sum() < 1e-6


def test_a_picture_smaller_than_the_kernel_is_still_blurred() -> None:
    planes = torch.rand(3, 1, 4, 4)
    before = planes.clone()
    blur_(planes, torch.tensor([2.0]), kernel=23)
    assert planes.var() < before.var() / 2
    torch.testing.assert_close(planes.amax().clamp(max=before.amax()), planes.amax())
