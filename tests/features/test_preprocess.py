from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError
from manyview.data.image import decode
from manyview.features.preprocess import EncoderInput, Preprocess
from manyview.views import AUGMENTATIONS, CIFAR, VIEWS, Modality, View


def picture(height: int, width: int, channels: int = 3) -> Tensor:
    draw = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (channels, height, width), generator=draw, dtype=torch.uint8)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (48, 40), (30, 100), (200, 300)])
def test_a_picture_becomes_what_evaluation_sees(height: int, width: int) -> None:
    raw, stack = picture(height, width), AUGMENTATIONS["probe-test"](32)
    ids = torch.zeros(1, dtype=torch.long)
    seen = (
        stack({"image": raw[None]}, ids)["image"][0]
        if max(height, width) <= 128
        else stack.finish({"image": [view[None] for view in stack.prepare({"image": raw}, 0)["image"]]}, ids)["image"][
            0
        ]
    )
    assert torch.equal(Preprocess(32)(raw), seen)
    assert seen.shape == (1, 3, 32, 32)


def test_the_normalisation_is_the_one_it_is_given() -> None:
    raw = picture(32, 32)
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in CIFAR)
    preprocess = Preprocess(32, picture=Modality(*CIFAR, colour=True))
    torch.testing.assert_close(preprocess(raw)[0], (raw / 255 - mean) / std)
    assert (preprocess.picture.mean, preprocess.picture.std) == CIFAR


def test_a_file_an_image_and_a_tensor_are_the_same_picture(tmp_path: Path) -> None:
    raw, preprocess = picture(40, 36), Preprocess(32)
    image = Image.fromarray(raw.permute(1, 2, 0).numpy())
    image.save(tmp_path / "one.png")
    assert torch.equal(preprocess(image), preprocess(raw))
    assert torch.equal(preprocess(tmp_path / "one.png"), preprocess(raw))
    assert torch.equal(preprocess(str(tmp_path / "one.png")), preprocess(raw))


def test_a_file_is_turned_as_its_camera_was(tmp_path: Path) -> None:
    raw = picture(32, 48)
    turned = Image.fromarray(np.rot90(raw.permute(1, 2, 0).numpy()).copy())
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    turned.save(tmp_path / "turned.png", exif=exif)
    assert torch.equal(Preprocess(32)(tmp_path / "turned.png"), Preprocess(32)(raw))


def test_grey_pictures_for_a_grey_encoder_and_colour_for_one_of_three(tmp_path: Path) -> None:
    grey = Image.fromarray(picture(32, 32, 1)[0].numpy())
    assert Preprocess(32, channels=1)(grey).shape == (1, 1, 32, 32)
    assert Preprocess(32, channels=1, picture=Modality(*CIFAR, colour=True))(picture(32, 32, 1)).shape == (1, 1, 32, 32)
    assert Preprocess(32)(grey).shape == (1, 3, 32, 32)


def test_what_is_no_picture_of_the_encoders_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"picture: expected \(3, H, W\) uint8, got \(1, 8, 8\)"):
        Preprocess(32)(picture(8, 8, 1))
    with pytest.raises(ValueError, match="float32"):
        Preprocess(32)(torch.rand(3, 8, 8))
    picture_of_two = Image.fromarray(picture(8, 8)[0].numpy())
    with pytest.raises(ValueError, match=r"picture: expected \(2, H, W\) uint8"):
        Preprocess(32, channels=2)(picture_of_two)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "I;16", "P"])
def test_a_file_is_read_as_training_reads_it(mode: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    shape, depth = {"RGBA": ((20, 20, 4), np.uint8), "LA": ((20, 20, 2), np.uint8)}.get(mode, ((20, 20), np.uint8))
    pixels = draw.integers(0, 256, shape).astype(depth)
    image = Image.fromarray((pixels.astype(np.uint16) * 257) if mode == "I;16" else pixels)
    image = image.convert("P") if mode == "P" else image
    image.save(tmp_path / "one.png")
    assert torch.equal(Preprocess(20)(tmp_path / "one.png"), Preprocess(20)(decode(tmp_path / "one.png")))


def test_a_file_that_is_no_picture_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "no.png").write_text("hello")
    for name in ("no.png", "missing.png"):
        with pytest.raises(ValueError, match=f"picture: .*{name} cannot be read: "):
            Preprocess(32)(tmp_path / name)


def test_several_pictures_become_one_batch() -> None:
    preprocess, pictures = Preprocess(32), [picture(40, 36), picture(32, 32)]
    assert torch.equal(preprocess(pictures), torch.cat([preprocess(each) for each in pictures]))
    with pytest.raises(ValueError, match="picture: expected a file, a Pillow image or a tensor, got int"):
        preprocess([1])  # type: ignore[list-item]


def test_it_says_what_it_does_to_a_picture() -> None:
    normal = "(x / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)"
    assert str(Preprocess(32)) == f"short side to 32 px, the middle 32 x 32 of it, {normal}"
    assert str(Preprocess(224)).startswith("short side to 256 px, the middle 224 x 224 of it, (x / 255 - ")
    assert str(Preprocess(32, 1)) == "x is 1 channel of 8 bits; short side to 32 px, the middle 32 x 32 of it, x / 255"
    lightness = str(Preprocess(32, view=View("image", channels=(0,), space="lab")))
    assert lightness.endswith("of it, (channels (0,) of lab of RGB x / 255 - (50.0,)) / (50.0,)")


def test_it_says_what_becomes_of_values_without_data() -> None:
    depth = EncoderInput(1, "float32", Modality((1500.0,), (700.0,), nodata=0.0), View("depth"))
    assert str(Preprocess(32, input=depth)) == (
        "x is 1 channel of 16 bits or floats in the unit of the files, not scaled; 0, NaN and infinity are no data and "
        "become the mean 1500 first; short side to 32 px, the middle 32 x 32 of it, (x - (1500.0,)) / (700.0,), mean "
        "and std of depth in training"
    )
    masked = EncoderInput(1, "uint8", Modality((0.5,), (0.2,), nodata=255.0), View("thermal"))
    assert str(Preprocess(32, input=masked)).startswith(
        "x is 1 channel of 8 bits; 255, NaN and infinity are no data and become the mean 128 first; short side"
    )


def test_a_file_of_another_form_is_refused_and_grey_is_a_picture(tmp_path: Path) -> None:
    depth = EncoderInput(1, "float32", Modality((1500.0,), (700.0,)), View("depth"))
    made: dict[str, np.ndarray[Any, Any]] = {
        "deep": np.array([[1, 2]], np.uint16),
        "grey": np.array([[1, 2]], np.uint8),
        "rgb": np.zeros((2, 2, 3), np.uint8),
    }
    for name, array in made.items():
        Image.fromarray(array).save(tmp_path / f"{name}.png")
    refused = {EncoderInput(): ["deep"], depth: ["grey", "rgb"]}
    for given, names in refused.items():
        for name in made:
            expected = pytest.raises(UserError, match=f"view: .*{name}.png is .*, and it was trained on {given.form}")
            with expected if name in names else nullcontext():
                given.check_file(tmp_path / f"{name}.png", "it")
    EncoderInput().check_file(tmp_path / "none.png", "it")  # whoever reads it says what is wrong


def test_an_input_of_another_kind_is_read_in_its_own_unit(tmp_path: Path) -> None:
    depth = EncoderInput(1, "float32", Modality((1500.0,), (700.0,)), View("depth"))
    raw = np.full((32, 40), 2200, np.uint16)
    Image.fromarray(raw).save(tmp_path / "one.png")
    np.save(tmp_path / "one.npy", raw)
    preprocess = Preprocess(32, input=depth)
    for file in ("one.png", "one.npy"):
        torch.testing.assert_close(preprocess(tmp_path / file), torch.ones(1, 1, 32, 32))
    assert repr(preprocess).endswith("(x - (1500.0,)) / (700.0,), mean and std of depth in training")
    assert preprocess.normalisation == ((1500.0,), (700.0,))
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "rgb.png")
    with pytest.raises(UserError, match=r"expected \(1, H, W\) float32, got \(3, 32, 32\) uint8 in .*rgb.png"):
        preprocess(tmp_path / "rgb.png")


@pytest.mark.parametrize(
    "given",
    [
        EncoderInput(),
        EncoderInput(view=View("rgb", channels=(1, 2), space="lab")),
        EncoderInput(3, "float32", Modality(vectors="directions"), View("normals")),
        EncoderInput(13, "float32", Modality((0.5,) * 13, (0.1,) * 13), View("bands", channels=(3, 7))),
    ],
)
def test_an_input_survives_its_file(given: EncoderInput) -> None:
    assert EncoderInput.from_json(given.to_json(), "file") == given


@pytest.mark.parametrize("text", ["{", '{"channels": "a"}', '{"dtype": "int64"}', '{"modality": {"std": [0]}}'])
def test_an_input_that_somebody_made_up_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="file: what it says of its encoder's input is damaged"):
        EncoderInput.from_json(text, "file")


@pytest.mark.parametrize("size", [32, 64, 96, 128, 160, 192, 224, 256, 384])
def test_timm_resizes_to_the_same_short_side(size: int) -> None:
    config = Preprocess(size).timm_config()
    assert config["input_size"] == [3, size, size]
    assert f"short side to {math.floor(size / config['crop_pct'])} px" in repr(Preprocess(size))


def test_where_timm_has_no_such_transform_only_the_size_is_told() -> None:
    assert Preprocess(32, view=VIEWS["L"]).timm_config() == {"input_size": [1, 32, 32]}
