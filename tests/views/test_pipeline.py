"""A view pipeline: one call makes all views, each as torchvision would with the same numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torchvision.transforms.functional as tv
from torch import Tensor
from torch._subclasses import FakeTensorMode

from manyview.views import AUGMENTATIONS, IMAGENET, SPACES, VIEWS, Augmentation, Modality, View, ViewPipeline
from manyview.views.colour import coloured
from manyview.views.pipeline import Geometry
from tests.views.oracle import oracle, pictures

EVERYTHING = Augmentation(
    24, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.2), jitter_p=0.8, grey=0.3, blur=0.5, kernel=5, solarise=0.3
)


@pytest.mark.parametrize("grey_first", [False, True])
def test_every_view_of_a_batch_is_torchvisions(grey_first: bool) -> None:
    augmentation = Augmentation(**{**EVERYTHING.__dict__, "grey_first": grey_first})
    images, ids, pipeline = pictures(40), torch.arange(40) * 7, ViewPipeline([augmentation] * 3)
    views = pipeline({"image": images}, ids, seed=5, epoch=2)["image"]
    assert len(views) == 3
    for k, view in enumerate(views):
        numbers = pipeline.params("image", ids, k, 5, 2, images.shape[2:])
        for row in range(40):
            wanted = oracle(images[row], augmentation, numbers, row)
            wrong = (view[row] - wanted).abs().amax(0) > 1e-4
            # a pixel at one half may be solarised on one side only
            assert wrong.sum() <= (2 if numbers.solarise[row] else 0)


def test_a_view_depends_on_seed_epoch_and_id_only() -> None:
    images, ids, pipeline = pictures(), torch.arange(100, 112), ViewPipeline([EVERYTHING] * 2)
    whole = pipeline({"image": images}, ids, seed=1, epoch=3)["image"]
    some = torch.tensor([7, 2, 9])
    again = pipeline({"image": images[some]}, ids[some], seed=1, epoch=3)["image"]
    for a, b in zip(whole, again, strict=True):
        assert torch.equal(a[some], b)  # to the bit: one process and two see the same
    for change in ({"seed": 2, "epoch": 3}, {"seed": 1, "epoch": 4}):
        assert not torch.allclose(whole[0], pipeline({"image": images}, ids, **change)["image"][0])
    assert not torch.allclose(whole[0], pipeline({"image": images}, ids + 1, seed=1, epoch=3)["image"][0])
    assert not torch.allclose(whole[0], whole[1])


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_makes_the_views_that_a_batch_makes(late: bool) -> None:
    """To 2 of 255 steps for the rounding of the crop, more where colours stretch it."""
    images, ids, pipeline = pictures(), torch.arange(12), ViewPipeline([EVERYTHING] * 2)
    one_by_one = [pipeline.prepare({"image": images[i]}, i, colour=not late)["image"] for i in range(12)]
    prepared = [torch.stack([copies[k] for copies in one_by_one]) for k in range(2)]
    assert all(crops.dtype == torch.uint8 for crops in prepared)
    finished = pipeline.finish({"image": prepared}, ids, colour=late)["image"]
    for a, b in zip(finished, pipeline({"image": images}, ids)["image"], strict=True):
        off = (a - b).abs() * torch.tensor(IMAGENET[1]).view(3, 1, 1) * 255
        assert off.median() <= 1
        assert off.quantile(0.95) <= 6


def test_large_pictures_are_cut_one_by_one_to_the_same_views() -> None:
    augmentation = Augmentation(64, (0.2, 1.0))
    images = pictures(4, 150, 200)
    views = ViewPipeline([augmentation])({"image": images}, torch.arange(4))["image"][0]
    params = ViewPipeline([augmentation]).params("image", torch.arange(4), 0, 0, 0, (150, 200))
    for row in range(4):
        off = (views[row] - oracle(images[row], augmentation, params, row)).abs() * 255 * 0.229
        assert off.max() <= 2


def test_modalities_share_crop_and_flip_but_not_colour() -> None:
    base = pictures(8, 40, 40)
    position = torch.arange(1600.0).view(1, 1, 40, 40).expand(8, 1, 40, 40).contiguous()
    raw = {"rgb": base, "again": base, "depth": position, "labels": base[:, :1]}
    modalities = {"labels": Modality(nearest=True), "depth": Modality((800.0,), (400.0,))}
    pipeline = ViewPipeline([EVERYTHING], modalities)
    ids = torch.arange(8)
    views = {name: copies[0] for name, copies in pipeline(raw, ids).items()}
    plain = ViewPipeline([Augmentation(24, (0.2, 1.0))], {name: Modality() for name in raw})(raw, ids)
    assert not torch.allclose(views["rgb"], views["again"])
    torch.testing.assert_close(plain["rgb"][0], plain["again"][0])
    params = pipeline.params("rgb", ids, 0, 0, 0, (40, 40))
    for row in range(8):
        wanted = tv.resized_crop(position[row], *params.box[row].tolist(), [24, 24], antialias=True)
        wanted = tv.hflip(wanted) if params.flip[row] else wanted
        torch.testing.assert_close(views["depth"][row], (wanted - 800) / 400, atol=1e-4, rtol=0)
    assert set(views["labels"].unique().tolist()) <= set(base.unique().float().tolist())


def test_a_modality_of_another_resolution_shows_the_same_part() -> None:
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


@pytest.mark.parametrize("name", ["labels13", "Segmentation_labels", "sem_seg"])
def test_a_modality_that_is_called_a_label_map_keeps_its_values(name: str) -> None:
    raw = {"rgb": pictures(4), name: torch.randint(13, (4, 1, 40, 36), dtype=torch.uint8)}
    view = ViewPipeline([Augmentation(24, (0.2, 1.0))])(raw, torch.arange(4))[name][0]
    assert set(view.unique().tolist()) <= set(range(13))


@pytest.mark.parametrize("hole", [float("nan"), float("inf"), -9999.0])
def test_a_hole_in_a_modality_is_the_mean_before_it_is_mixed_with_others(hole: float) -> None:
    depth, ids = torch.rand(2, 1, 40, 40), torch.arange(2)
    holed, filled = depth.clone(), depth.clone()
    holed[0, 0, 10:14, 10], filled[0, 0, 10:14, 10] = hole, 0.25
    pipeline = ViewPipeline([Augmentation(32, (0.5, 1.0))], {"depth": Modality((0.25,), (2.0,), nodata=-9999)})
    assert pipeline({"depth": holed}, ids)["depth"][0].equal(pipeline({"depth": filled}, ids)["depth"][0])
    prepared, right = (pipeline.prepare({"depth": each[0]}, 0)["depth"][0] for each in (holed, filled))
    assert prepared.equal(right)


def test_no_data_of_8_bits_is_the_mean_too() -> None:
    grey = torch.full((1, 1, 32, 32), 7, dtype=torch.uint8)
    grey[..., :16] = 0
    middle = ViewPipeline([Augmentation(32, None, resize=32, flip=0)], {"x": Modality((0.2,), (0.1,), nodata=0)})
    seen = middle({"x": grey}, torch.arange(1))["x"][0]
    assert seen[..., :16].abs().max() < 1e-6
    assert seen[..., 16:].sub((7 / 255 - 0.2) / 0.1).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_with_holes_a_view_is_nan_wherever_no_data_was_mixed_in(dtype: torch.dtype) -> None:
    grey = torch.randint(1, 200, (4, 1, 40, 40)).to(dtype)
    grey[:, :, 10:20, 10:30] = 0
    plain = ViewPipeline([Augmentation(32, (0.5, 1.0))], {"x": Modality((0.2,), (0.1,), nodata=0)})
    holed, ids = replace(plain, holes=True), torch.arange(4)
    other = grey.where(grey > 0, 60)  # only what is made of holes can tell
    seen, filled, moved = (
        made({"x": raw}, ids)["x"][0] for made, raw in ((holed, grey), (plain, grey), (plain, other))
    )
    known = ~seen.isnan()
    assert 0.5 < known.float().mean() < 1
    assert seen[known].equal(filled[known])
    torch.testing.assert_close(seen[known], moved[known])
    prepared = torch.stack([holed.prepare({"x": image}, int(id))["x"][0] for image, id in zip(grey, ids, strict=True)])
    assert holed.finish({"x": [prepared]}, ids)["x"][0].isnan().equal(~known)
    worker = torch.stack([plain.prepare({"x": image}, int(id))["x"][0] for image, id in zip(grey, ids, strict=True)])
    right = plain.finish({"x": [worker]}, ids)["x"][0]
    torch.testing.assert_close(holed.finish({"x": [prepared]}, ids)["x"][0][known], right[known])


def test_pictures_without_no_data_have_no_holes() -> None:
    raw, ids = {"image": pictures(4)}, torch.arange(4)
    plain = ViewPipeline([EVERYTHING])
    assert replace(plain, holes=True)(raw, ids)["image"][0].equal(plain(raw, ids)["image"][0])


def test_a_float_picture_in_colour_is_the_same_from_a_worker() -> None:
    picture = torch.rand(3, 20, 20)
    pipeline = ViewPipeline([Augmentation(16, jitter=(0.4,) * 4)], {"image": Modality(colour=True)})
    whole = pipeline({"image": picture[None]}, torch.tensor([3]))["image"][0]
    worker = pipeline.finish({"image": [pipeline.prepare({"image": picture}, 3)["image"][0][None]]}, torch.tensor([3]))
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
        with pytest.raises(ValueError, match="give a list of Augmentation"):
            ViewPipeline(wrong)  # type: ignore[arg-type]


COLOURED = ViewPipeline([EVERYTHING] * 3)
DERIVED = COLOURED.of({"L": 1, "ab": 3, "image": 2})


@pytest.mark.parametrize("name", [name for name, view in VIEWS.items() if view.space])
def test_a_derived_view_is_the_same_crop_and_colour_in_its_space(name: str) -> None:
    images, ids = pictures(), torch.arange(12)
    unnormalised = ViewPipeline([EVERYTHING] * 2, picture=Modality(colour=True))
    rgb = unnormalised({"image": images}, ids, seed=1, epoch=2)["image"]
    view = VIEWS[name]
    assert view.space is not None
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in view.statistics(Modality()))
    found = ViewPipeline([EVERYTHING] * 2).of({name: 2})({"image": images}, ids, seed=1, epoch=2)
    assert list(found) == [name]
    for k in range(2):
        whole = SPACES[view.space].convert(rgb[k].transpose(0, 1)).transpose(0, 1)
        wanted = (whole[:, list(view.channels or ())] - mean) / std
        torch.testing.assert_close(found[name][k], wanted, atol=1e-4, rtol=1e-4)


def test_views_come_in_the_order_and_number_asked_for_and_none_changes_another() -> None:
    images, ids = pictures(), torch.arange(12)
    views = DERIVED({"image": images}, ids)
    assert {name: [tuple(copy.shape[1:]) for copy in copies] for name, copies in views.items()} == {
        "L": [(1, 24, 24)],
        "ab": [(2, 24, 24)] * 3,
        "image": [(3, 24, 24)] * 2,
    }
    for name, copies in views.items():
        alone = COLOURED.of({name: len(copies)})({"image": images}, ids)[name]
        assert all(torch.equal(a, b) for a, b in zip(copies, alone, strict=True))
    as_ever = COLOURED({"image": images}, ids)["image"]
    assert all(torch.equal(a, b) for a, b in zip(views["image"], as_ever, strict=False))


def test_views_of_one_modality_are_cut_and_coloured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(planes: Tensor, *params: Any) -> Tensor:
        calls.append(planes.shape[1])
        return coloured(planes, *params)

    monkeypatch.setattr("manyview.views.pipeline.coloured", counted)
    DERIVED({"image": pictures()}, torch.arange(12))
    assert sum(calls) == 3 * 12


@pytest.mark.parametrize("geometry", ["shared", "own"])
@pytest.mark.parametrize("late", [False, True])
def test_a_worker_makes_the_derived_views_that_a_batch_makes(geometry: Geometry, late: bool) -> None:
    images, ids = pictures(), torch.arange(12)
    plain = ViewPipeline([Augmentation(24, (0.2, 1.0), jitter=(0.2, 0.2, 0.2, 0.0), grey=0.2)] * 2)
    pipeline = plain.of({"L": 1, "ab": 2}, geometry=geometry)
    prepared = collated(pipeline, {"image": images}, colour=not late)
    assert list(prepared) == (["image"] if geometry == "shared" else ["L", "ab"])
    finished, whole = pipeline.finish(prepared, ids, colour=late), pipeline({"image": images}, ids)
    assert list(finished) == list(whole) == ["L", "ab"]
    for name, copies in whole.items():
        for a, b in zip(finished[name], copies, strict=True):
            off = (a - b).abs()
            assert off.median() <= 1 / 128
            assert off.quantile(0.95) <= 6 / 128


def collated(pipeline: ViewPipeline, raw: dict[str, Tensor], **options: Any) -> dict[str, list[Tensor]]:
    count = len(next(iter(raw.values())))
    ones = [pipeline.prepare({name: each[i] for name, each in raw.items()}, i, **options) for i in range(count)]
    return {name: [torch.stack(copy) for copy in zip(*(one[name] for one in ones), strict=True)] for name in ones[0]}


def test_views_share_the_crop_of_a_copy_or_draw_their_own() -> None:
    position = torch.arange(1600.0).view(1, 1, 40, 40).expand(8, 1, 40, 40).contiguous()
    raw, ids, plain = {"a": position, "b": position.clone()}, torch.arange(8), ViewPipeline([EVERYTHING] * 2)
    shared = plain.of({"a": 2, "b": 1})(raw, ids)
    assert torch.equal(shared["a"][0], shared["b"][0])
    assert not torch.equal(shared["a"][1], shared["b"][0])
    own = plain.of({"a": 2, "b": 1}, geometry="own")(raw, ids)
    assert all(not torch.equal(a, b) for a, b in zip(own["a"][0], own["b"][0], strict=True))
    twice = plain.of({"one": 1, "two": 1}, views={"one": View("a"), "two": View("a")}, geometry="own")(raw, ids)
    assert not torch.equal(twice["one"][0], twice["two"][0])


def test_a_modality_that_no_view_takes_is_left_alone() -> None:
    raw = {"depth": torch.rand(4, 1, 80, 80), "image": pictures(4)}
    pipeline, ids = COLOURED.of({"L": 1}), torch.arange(4)
    assert torch.equal(pipeline(raw, ids)["L"][0], pipeline({"image": raw["image"]}, ids)["L"][0])
    assert list(pipeline.prepare({name: each[0] for name, each in raw.items()}, 0)) == ["image"]


def test_a_view_says_which_modality_it_is_made_of() -> None:
    assert COLOURED.sources(("rgb", "depth")) == {"rgb": "rgb", "depth": "depth"}
    derived = COLOURED.of({"L": 1, "depth": 1}, reference="rgb")
    assert derived.sources(("rgb", "depth", "flow")) == {"L": "rgb", "depth": "depth"}
    with pytest.raises(ValueError, match="views: 'L' is made of 'rgb', which the data lacks; it has depth, flow"):
        derived.sources(("depth", "flow"))
    with pytest.raises(ValueError, match="modalities: the data has no \\['thermal'\\]; it has image"):
        ViewPipeline([EVERYTHING], {"thermal": Modality()}).sources(["image"])


def test_channels_of_any_modality_are_a_view_with_its_statistics() -> None:
    bands = torch.rand(5, 4, 30, 30)
    pipeline = ViewPipeline([Augmentation(16)], {"bands": Modality((0.1, 0.2, 0.3, 0.4), (1.0, 2.0, 3.0, 4.0))})
    whole = pipeline({"bands": bands}, torch.arange(5))["bands"][0]
    some = pipeline.of({"infrared": 1}, views={"infrared": View("bands", channels=(3, 1))})
    assert torch.equal(some({"bands": bands}, torch.arange(5))["infrared"][0], whole[:, [3, 1]])


def test_copies_and_geometry_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match="copies: 4 of view 'L' with 3 augmentations"):
        COLOURED.of({"L": 4})
    with pytest.raises(ValueError, match="geometry: 'apart': give one of shared, own"):
        COLOURED.of({"L": 1}, geometry="apart")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_views_are_made_on_the_device_of_the_pictures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that is not there: whatever lies elsewhere, or waits for a number, fails."""
    size = 32 if name != "patches" else 4  # two of them, 64 pixels apart
    pipeline, ids = AUGMENTATIONS[name](size, 2).of({"L": 1, "image": 2, "flow": 1}), torch.arange(8)
    params = {(cut, k): pipeline.params(cut, ids, k, 0, 0, (80, 80)) for cut in ("image", "flow") for k in range(2)}
    monkeypatch.setattr(ViewPipeline, "params", lambda self, cut, ids, k, *rest: params[cut, k])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # the mode is known to this thread only
    with FakeTensorMode(allow_non_fake_inputs=True):
        images = torch.zeros(8, 3, 80, 80, dtype=torch.uint8, device="cuda")
        views = pipeline({"image": images, "flow": torch.zeros(8, 2, 80, 80, device="cuda")}, ids)
        made = [copy for copies in views.values() for copy in copies]
    assert len(made) == 4
    assert {copy.device.type for copy in made} == {"cuda"}
