from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.data import Scenes
from manyview.views import PICTURE, VIEWS, Augmentation, Modality, View, ViewPipeline
from manyview.views.view import checked, usual, view_named


def test_derived_views_are_of_the_reference_modality_and_other_names_are_modalities() -> None:
    assert view_named("L", "rgb") == View("rgb", channels=(0,), space="lab")
    assert view_named("DbDr", "image") == VIEWS["DbDr"]
    assert view_named("depth", "rgb") == View("depth")


def test_a_split_takes_each_channel_of_its_space_once() -> None:
    names = list(VIEWS)
    for alone, rest in zip(names[::2], names[1::2], strict=True):
        assert VIEWS[alone].space == VIEWS[rest].space
        assert len(VIEWS[alone].channels or ()) == 1
        assert sorted((*(VIEWS[alone].channels or ()), *(VIEWS[rest].channels or ()))) == [0, 1, 2]
    assert VIEWS["RB"] == View("image", channels=(0, 2))
    assert VIEWS["Y_YCbCr"] == View("image", channels=(0,), space="ycbcr")


def test_statistics_are_the_views_own_or_those_of_its_space_or_modality_for_the_kept_channels() -> None:
    assert VIEWS["ab"].statistics(PICTURE) == ((6.025, -6.6895), (92.208, 101.1675))
    assert VIEWS["Y"].statistics(PICTURE) == ((0.457,), (0.5,))
    assert VIEWS["CbCr"].statistics(PICTURE) == ((121.080, 132.342), (111.855, 111.964))
    assert VIEWS["RB"].statistics(PICTURE) == ((0.485, 0.406), (0.229, 0.225))
    assert View("image", channels=(2, 0)).statistics(PICTURE) == ((0.406, 0.485), (0.225, 0.229))
    assert View("flow", channels=(1,)).statistics(Modality((3.0,), (2.0,))) == ((3.0,), (2.0,))
    assert View("flow", mean=(1.0,), std=(4.0,)).statistics(Modality()) == ((1.0,), (4.0,))


def test_the_kept_channels_are_a_copy() -> None:
    planes = torch.arange(12.0).view(3, 1, 2, 2)
    for view, wanted in ((View(channels=(2, 0)), planes[[2, 0]]), (View(), planes)):
        taken = view.taken(planes)
        assert torch.equal(taken, wanted)
        taken.zero_()
    assert planes.sum() == 66


def test_a_mistake_is_named() -> None:
    with pytest.raises(ValueError, match="space: there is no colour space 'xyz'; give lab, ydbdr, ycbcr, hsv, hed"):
        View(space="xyz")
    with pytest.raises(ValueError, match="channels: a view has at least one"):
        View(channels=())
    with pytest.raises(ValueError, match=r"mean: .* as many numbers each"):
        View(mean=(0.5,))
    with pytest.raises(ValueError, match="space: lab is made of three channels, 'depth' has 1"):
        View("depth", space="lab").width(1)
    with pytest.raises(ValueError, match=r"channels: \(3,\): 'image' has channels 0 to 2"):
        View(channels=(3,)).width(3)
    with pytest.raises(ValueError, match="mean: 2 numbers for the 1 channels of a view of 'image'"):
        View(channels=(0,), mean=(0.0, 1.0), std=(1.0, 1.0)).width(3)


def test_a_modality_is_taken_for_what_its_name_and_kind_say() -> None:
    floats, bytes = torch.empty(3, 4, 4), torch.empty(3, 4, 4, dtype=torch.uint8)
    assert usual("image", bytes, PICTURE) is PICTURE
    assert usual("image", floats, PICTURE) == Modality()
    assert usual("semantic", bytes[:1], PICTURE) == Modality(nearest=True)
    assert usual("normals", floats, PICTURE) == usual("normal_map", bytes, PICTURE) == Modality(vectors="directions")
    assert usual("flow", floats[:2], PICTURE) == Modality(vectors="displacements")
    assert usual("flow_picture", bytes, PICTURE) is PICTURE
    assert usual("flowers", floats[:1], PICTURE) == Modality()


def test_a_modality_that_does_not_fit_its_values_is_named() -> None:
    floats, bytes = torch.empty(3, 4, 4), torch.empty(2, 4, 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="'depth' has 1 channels: vectors have 2 or 3"):
        checked("depth", Modality(vectors="directions"), floats[:1])
    with pytest.raises(ValueError, match="'flow' is of uint8: displacements are numbers of pixels"):
        checked("flow", Modality(vectors="displacements"), bytes)
    with pytest.raises(ValueError, match="std"):
        Modality((0.5,), (0.0,))


def moved(x: float, y: float, crop: Augmentation, box: list[int], flip: bool) -> tuple[float, float]:
    """Where a point of the picture lies in its crop, both in pixels from the corner."""
    top, left, height, width = box
    x, y = (x - left) * crop.size / width, (y - top) * crop.size / height
    return (crop.size - x if flip else x), y


def cropped(
    modalities: dict[str, Tensor], crop: Augmentation
) -> tuple[dict[str, list[Tensor]], list[list[int]], list[bool]]:
    pipeline, ids = ViewPipeline([crop]), torch.arange(len(next(iter(modalities.values()))))
    views = pipeline(modalities, ids)
    params = pipeline.params("flow", ids, 0, 0, 0, next(iter(modalities.values())).shape[2:])
    return views, params.box.tolist(), params.flip.tolist()


def test_the_flow_of_a_crop_is_that_between_the_cropped_pictures() -> None:
    """A flow that is linear in the place, which enlarging keeps: away from the edges each pixel can be compared."""
    side, crop = 40, Augmentation(40, (0.2, 1.0), ratio=(0.5, 2.0))
    rows, columns = torch.meshgrid(torch.arange(side) + 0.5, torch.arange(side) + 0.5, indexing="ij")

    def flow_at(x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([3 + 0.2 * x - 0.1 * y, -2 + 0.05 * x + 0.15 * y])

    flow = flow_at(columns, rows).expand(16, 2, side, side)
    views, boxes, flips = cropped({"flow": flow}, crop)
    assert 0 < sum(flips) < 16
    for view, box, flip in zip(views["flow"][0], boxes, flips, strict=True):
        top, left, height, width = box
        for row in range(4, 36, 3):
            for column in range(4, 36, 3):
                along = 40 - (column + 0.5) if flip else column + 0.5
                x, y = left + along * width / 40, top + (row + 0.5) * height / 40
                u, v = flow_at(torch.tensor(x), torch.tensor(y)).tolist()
                here, there = moved(x, y, crop, box, flip), moved(x + u, y + v, crop, box, flip)
                wanted = torch.tensor([there[0] - here[0], there[1] - here[1]], dtype=torch.float32)
                torch.testing.assert_close(view[:, row, column], wanted, atol=1e-3, rtol=1e-4)


def test_the_flow_of_a_scene_that_is_shrunk_is_that_of_the_scene_rendered_smaller() -> None:
    large, small = (Scenes(8, size=size, modalities=("flow",)).batch(torch.arange(8))["flow"] for size in (64, 32))
    shrunk = ViewPipeline([Augmentation(32, scale=None, flip=0.0)])({"flow": large}, torch.arange(8))["flow"][0]
    assert (shrunk - small).abs().median() < 0.02
    assert large.abs().median() > 1.8 * small.abs().median()  # it is in pixels


def test_the_flow_of_a_flipped_scene_leads_to_what_the_flipped_second_picture_shows() -> None:
    """In the first picture at p, in the second at p + flow: as well before the flip as after it."""
    data = Scenes(4, size=64, modalities=("depth", "rgb", "rgb2", "flow")).batch(torch.arange(4))
    plain, mirrored = (
        {
            name: made[0]
            for name, made in ViewPipeline([Augmentation(64, scale=None, flip=chance)])(data, torch.arange(4)).items()
        }
        for chance in (0.0, 1.0)
    )
    wrong = {name: _mismatch(views) for name, views in (("plain", plain), ("mirrored", mirrored))}
    torch.testing.assert_close(wrong["mirrored"], wrong["plain"], atol=0.03, rtol=0)
    mirrored["flow"][:, 0].neg_()
    assert _mismatch(mirrored) > 1.5 * wrong["plain"]


def _mismatch(views: dict[str, Tensor]) -> Tensor:
    """Mean difference of rgb at each pixel and rgb2 where its flow leads, by a loop over pixels."""
    off = []
    for rgb, later, flow in zip(views["rgb"], views["rgb2"], views["flow"], strict=True):
        side = rgb.shape[-1]
        for row in range(0, side, 2):
            for column in range(0, side, 2):
                u, v = flow[:, row, column].tolist()
                x, y = int(column + 0.5 + u), int(row + 0.5 + v)
                if 0 <= x < side and 0 <= y < side:
                    off.append((rgb[:, row, column] - later[:, y, x]).abs().mean())
    return torch.stack(off).mean()


def test_normals_of_a_flipped_view_point_the_other_way_in_x_only() -> None:
    scenes = Scenes(12, size=32, modalities=("normals",)).batch(torch.arange(12))
    crop = Augmentation(20, (0.3, 1.0))
    views, _, flips = cropped({"flow": torch.zeros(12, 2, 32, 32), **scenes}, crop)
    plain = ViewPipeline([crop], {"normals": Modality()})(
        {"flow": torch.zeros(12, 2, 32, 32), **scenes}, torch.arange(12)
    )
    assert 0 < sum(flips) < 12
    for found, as_it_is, flip in zip(views["normals"][0], plain["normals"][0], flips, strict=True):
        torch.testing.assert_close(found[0], -as_it_is[0] if flip else as_it_is[0])
        torch.testing.assert_close(found[1:], as_it_is[1:])


def test_normals_as_a_picture_are_mirrored_about_the_middle() -> None:
    normals = torch.randint(256, (6, 3, 16, 16), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    pipeline = ViewPipeline([Augmentation(16, scale=None, flip=1.0)])
    found = pipeline({"normals": normals}, torch.arange(6))["normals"][0]
    wanted = normals.flip(-1).float() / 255
    wanted[:, 0] = 1 - wanted[:, 0]
    torch.testing.assert_close(found, wanted)


def test_a_worker_turns_vectors_as_a_batch_does() -> None:
    data = Scenes(6, size=24, modalities=("flow", "normals")).batch(torch.arange(6))
    pipeline = ViewPipeline([Augmentation(16, (0.3, 1.0))] * 2)
    whole = pipeline(data, torch.arange(6))
    one_by_one = [pipeline.prepare({name: each[i] for name, each in data.items()}, i) for i in range(6)]
    prepared = {name: [torch.stack([one[name][k] for one in one_by_one]) for k in range(2)] for name in data}
    for name, views in pipeline.finish(prepared, torch.arange(6)).items():
        for a, b in zip(views, whole[name], strict=True):
            assert torch.equal(a, b)
