"""What a worker makes of one sample: torchvision's views to 2/255, from whole pictures and from smaller ones."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from PIL import Image
from torch import Tensor

from manyview.views import AUGMENTATIONS, IMAGENET, Augmentation, Modality, ViewPipeline
from manyview.views.resample import scaled_boxes
from tests.views.oracle import oracle
from tests.views.test_colour_uint8 import photos

PLAIN = Augmentation(48, (0.2, 1.0))
JITTERED = replace(PLAIN, jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2, blur=0.5, solarise=0.2)
STD = torch.tensor(IMAGENET[1]).view(3, 1, 1)


def photo(height: int = 300, width: int = 400) -> Tensor:
    """One picture (3, H, W) with structure at all scales, channels last in memory, as files are decoded."""
    small = photos(2, 60)[1].permute(1, 2, 0).numpy()
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_a_crop_is_torchvisions_to_2_of_255() -> None:
    image, ids = photo(), torch.arange(30)
    pipeline = ViewPipeline([PLAIN] * 2, picture=Modality(colour=True))
    plan = pipeline.plan(["image"], ids)
    for row in range(30):
        views = plan.prepare(row, {"image": image})["image"]
        for k, view in enumerate(views):
            params = pipeline.params("image", ids, k, 0, 0, (300, 400))
            wanted = tv.resized_crop(image.float(), *params.box[row].tolist(), [48, 48], antialias=True)
            wanted = tv.hflip(wanted) if params.flip[row] else wanted
            assert (view - wanted).abs().max() <= 2


def test_a_whole_view_is_torchvisions_but_for_the_rounding_of_each_operation() -> None:
    image, ids, pipeline = photo(), torch.arange(60), ViewPipeline([JITTERED])
    plan, params = pipeline.plan(["image"], ids), pipeline.params("image", ids, 0, 0, 0, (300, 400))
    off = []
    for row in range(60):
        view = plan.prepare(row, {"image": image})["image"][0] / 255
        wanted = oracle(image, JITTERED, params, row) * STD + torch.tensor(IMAGENET[0]).view(3, 1, 1)
        off.append((view - wanted) * 255)
        assert off[-1].abs().median() <= 1
    assert abs(torch.stack(off).mean()) < 0.1


@pytest.mark.parametrize("layout", ["channels last", "planes"])
def test_a_plan_for_many_gives_each_what_one_for_it_alone_gives(layout: str) -> None:
    image = photo() if layout == "channels last" else photo().contiguous()
    pipeline, ids = ViewPipeline([JITTERED, replace(JITTERED, size=32), PLAIN]), torch.tensor([7, 3, 900])
    plan = pipeline.plan(["image"], ids, seed=2, epoch=5)
    for row, id in enumerate(ids.tolist()):
        alone = pipeline.prepare({"image": image}, id, seed=2, epoch=5)["image"]
        assert all(torch.equal(a, b) for a, b in zip(plan.prepare(row, {"image": image})["image"], alone, strict=True))


def test_views_do_not_touch_the_picture_and_are_put_where_they_are_wanted() -> None:
    image = photo(48, 48)  # a whole crop of it is the picture itself
    before = image.clone()
    plan = ViewPipeline([replace(JITTERED, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0)]).plan(
        ["image"], torch.arange(9)
    )
    out = torch.zeros(9, 3, 48, 48, dtype=torch.uint8)
    for row in range(9):
        (view,) = plan.prepare(row, {"image": image}, out={"image": [out[row]]})["image"]
        assert view.data_ptr() == out[row].data_ptr()
        assert torch.equal(view, plan.prepare(row, {"image": image})["image"][0])
    assert torch.equal(image, before)
    assert len({row.numpy().tobytes() for row in out}) > 5


@pytest.mark.parametrize(
    ("augmentation", "sizes"),
    [
        (replace(PLAIN, scale=(1.0, 1.0), ratio=(1.0, 1.0)), {190: 1, 192: 2, 383: 2, 384: 4, 768: 8, 9000: 8}),
        (Augmentation(48, None, resize=64), {250: 1, 256: 2, 512: 4}),
        (Augmentation(48, offset=(0, 0)), {4000: 1}),
    ],
)
def test_a_picture_is_decoded_no_smaller_than_twice_its_finest_view(
    augmentation: Augmentation, sizes: dict[int, int]
) -> None:
    plan = ViewPipeline([augmentation]).plan(["image"], torch.tensor([0]))
    assert {side: plan.shrink(0, side, side + 1) for side in sizes} == sizes
    several = ViewPipeline([augmentation, replace(augmentation, size=40, offset=(0, 0), scale=(1.0, 1.0), resize=None)])
    assert all(several.plan(["image"], torch.tensor([0])).shrink(0, side, side) == 1 for side in sizes)


def test_only_pictures_are_decoded_smaller() -> None:
    for modality, factor in ((Modality(colour=True), 8), (Modality(nearest=True), 1), (Modality(), 1)):
        plan = ViewPipeline([PLAIN], {"image": modality}).plan(["image"], torch.tensor([0]))
        assert plan.shrink(0, 9000, 9000) == factor


@pytest.mark.parametrize(("factor", "bias"), [(2, 0.1), (4, 0.1), (8, 0.25)])
def test_views_of_a_picture_that_was_decoded_smaller_are_torchvisions_of_the_whole_one(
    factor: int, bias: float
) -> None:
    """The box is rounded to whole pixels of the smaller picture."""
    side, file = 48 * 2 * factor, io.BytesIO()
    Image.fromarray(photo(side, side + 8).permute(1, 2, 0).numpy()).save(file, "JPEG", quality=95, subsampling=0)
    whole, small = Image.open(file), Image.open(file)
    size = (whole.height, whole.width)
    small.draft("RGB", (size[1] // factor, size[0] // factor))
    full, smaller = (torch.from_numpy(np.array(each)).permute(2, 0, 1) for each in (whole, small))
    plan = ViewPipeline([replace(PLAIN, scale=(0.9, 1.0), flip=0.0)]).plan(["image"], torch.arange(12))
    off = []
    for row in range(12):
        box = scaled_boxes(plan.boxes("image", row, size), size, smaller.shape[1:])[0] * factor
        wanted = tv.resized_crop(full.float(), *box.tolist(), [48, 48], antialias=True)
        off.append(plan.prepare(row, {"image": smaller}, size)["image"][0] - wanted)
    assert torch.stack(off).abs().mean() <= 1
    assert abs(torch.stack(off).mean()) <= bias


def test_large_and_small_crops_come_of_one_picture() -> None:
    large = AUGMENTATIONS["moco-v2"](64)
    pipeline = replace(large, augmentations=[*large.augmentations, *[replace(large.augmentations[0], size=32)] * 3])
    views = pipeline.prepare({"image": photo()}, 4)["image"]
    assert [tuple(view.shape) for view in views] == [(3, 64, 64)] * 2 + [(3, 32, 32)] * 3
    again = large.prepare({"image": photo()}, 4)["image"]
    assert all(torch.equal(a, b) for a, b in zip(views, again, strict=False))


def test_a_sample_without_any_modality_has_no_views() -> None:
    assert ViewPipeline([PLAIN]).plan(["image"], torch.arange(2)).prepare(1, {}) == {}
