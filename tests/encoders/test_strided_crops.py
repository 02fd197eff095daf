from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.encoders import create, load, save
from manyview.encoders.strided_crops import check_crop, strided_crops


def test_crops_of_16_pixels_overlap_by_8() -> None:
    images = torch.arange(2 * 3 * 64 * 64).reshape(2, 3, 64, 64).float()
    crops = strided_crops(images, 16)
    assert crops.shape == (2, 7, 7, 3, 16, 16)
    for y in range(7):
        for x in range(7):
            assert torch.equal(crops[:, y, x], images[:, :, 8 * y : 8 * y + 16, 8 * x : 8 * x + 16])


def test_what_fills_no_crop_is_left_out() -> None:
    assert strided_crops(torch.zeros(1, 1, 23, 16), 16).shape[1:3] == (1, 1)
    assert strided_crops(torch.zeros(1, 1, 24, 17), 16).shape[1:3] == (2, 1)


def test_an_encoder_embeds_each_crop_alone_and_an_image_as_their_mean() -> None:
    encoder = create("small_alexnet", channels=2, size=32, crop=16, width=0.02).eval()
    images = torch.randn(2, 2, 32, 32)
    with torch.no_grad():
        embedded, maps = encoder.embed_with_maps(images)
        assert list(maps) == ["crops"]
        for y in range(3):
            for x in range(3):
                alone = encoder.network(images[:, :, 8 * y : 8 * y + 16, 8 * x : 8 * x + 16])
                torch.testing.assert_close(maps["crops"][:, :, y, x], alone)
        torch.testing.assert_close(embedded, maps["crops"].mean((2, 3)))
        torch.testing.assert_close(encoder(images), embedded)
    assert encoder.layer_shapes() == {"crops": (encoder.dim, 3, 3)}


def test_an_encoder_of_crops_is_loaded_as_one(tmp_path: Path) -> None:
    encoder = create("patchnet", size=32, crop=16, widths=(4,), blocks=(1,)).eval()
    save(encoder, tmp_path / "crops.safetensors")
    again = load(tmp_path / "crops.safetensors").eval()
    images = torch.randn(2, 3, 32, 32)
    assert again.crop == 16
    torch.testing.assert_close(again(images), encoder(images))


@pytest.mark.parametrize("crop", [0, 1, 33, "16", 2.0])
def test_crops_that_do_not_fit_are_refused(crop: object) -> None:
    with pytest.raises(ValueError, match="crop: expected a whole number of pixels from 2 to 32"):
        check_crop(crop, 32)
