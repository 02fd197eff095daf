from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.data import Scenes
from manyview.views import PICTURE, SPACES, VIEWS, Augmentation, Modality, View, ViewPipeline
from manyview.views.view import checked, lab, usual, view_named, ydbdr


def test_derived_views_are_of_the_reference_modality_and_other_names_are_modalities() -> None:
    assert view_named("L", "rgb") == View("rgb", channels=(0,), space="lab")
    assert view_named("DbDr", "image") == VIEWS["DbDr"]
    assert view_named("depth", "rgb") == View("depth")


def test_statistics_are_the_views_own_or_those_of_its_space_or_modality_for_the_kept_channels() -> None:
    assert VIEWS["ab"].statistics(PICTURE) == ((6.025, -6.6895), (92.208, 101.1675))
    assert VIEWS["Y"].statistics(PICTURE) == ((0.457,), (0.5,))
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
    with pytest.raises(ValueError, match="space: there is no colour space 'hsv'; give lab, ydbdr"):
        View(space="hsv")
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


Pixel = tuple[float, float, float]


def lab_of(r: float, g: float, b: float) -> Pixel:
    """CIE 15 and IEC 61966-2-1, one pixel: sRGB to linear light, to XYZ, to L*a*b* relative to D65."""
    r, g, b = (((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in (r, g, b))
    x = (0.412453 * r + 0.357580 * g + 0.180423 * b) / 0.95047
    y = 0.212671 * r + 0.715160 * g + 0.072169 * b
    z = (0.019334 * r + 0.119193 * g + 0.950227 * b) / 1.08883
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ydbdr_of(r: float, g: float, b: float) -> Pixel:
    """SECAM, one pixel: Y = .299 R + .587 G + .114 B, Db = 1.505 (B - Y), Dr = -1.902 (R - Y), to three digits."""
    return (
        0.299 * r + 0.587 * g + 0.114 * b,
        -0.450 * r - 0.883 * g + 1.333 * b,
        -1.333 * r + 1.116 * g + 0.217 * b,
    )


ORACLES = {"lab": lab_of, "ydbdr": ydbdr_of}


def planes() -> Tensor:
    """Random pixels, many of them dark, where the formulas have another branch, and the corners of the cube."""
    generator = torch.Generator().manual_seed(0)
    random = torch.rand(3, 4, 5, 6, generator=generator) ** 3
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3).T.reshape(3, 1, 2, 4)
    random[:, :1, :2, :4] = corners
    return random


@pytest.mark.parametrize("name", SPACES)
def test_every_pixel_is_that_of_the_formula(name: str) -> None:
    pixels = planes()
    before = pixels.clone()
    found = SPACES[name].convert(pixels)
    assert found.shape == pixels.shape
    assert torch.equal(pixels, before)
    for n, row, column in torch.cartesian_prod(torch.arange(4), torch.arange(5), torch.arange(6)).tolist():
        wanted = torch.tensor(ORACLES[name](*pixels[:, n, row, column].tolist()))
        torch.testing.assert_close(found[:, n, row, column], wanted, atol=2e-4, rtol=1e-5)


def test_known_colours_in_lab() -> None:
    """As scikit-image's rgb2lab and the tables of sRGB's primaries have them."""
    for colour, wanted in {
        (1.0, 1.0, 1.0): (100.0, 0.0, 0.0),
        (1.0, 0.0, 0.0): (53.24, 80.09, 67.20),
        (0.0, 1.0, 0.0): (87.74, -86.18, 83.18),
        (0.0, 0.0, 1.0): (32.30, 79.19, -107.86),
    }.items():
        found = lab(torch.tensor(colour).view(3, 1, 1, 1)).flatten()
        torch.testing.assert_close(found, torch.tensor(wanted), atol=0.02, rtol=0)


def test_grey_has_no_colour_in_either_space() -> None:
    grey = torch.linspace(0, 1, 11).expand(3, 1, 1, 11)
    assert lab(grey)[1:].abs().max() < 0.02
    assert ydbdr(grey)[1:].abs().max() < 1e-6
    torch.testing.assert_close(ydbdr(grey)[0], grey[0])


@pytest.mark.parametrize("name", SPACES)
def test_the_statistics_of_the_field_bring_colours_to_about_one(name: str) -> None:
    cube = torch.cartesian_prod(*[torch.linspace(0, 1, 9)] * 3).T.reshape(3, 1, 27, 27)
    convert, mean, std = SPACES[name]
    normalised = (convert(cube) - torch.tensor(mean).view(3, 1, 1, 1)) / torch.tensor(std).view(3, 1, 1, 1)
    assert normalised.abs().max() < 1.1
    assert (normalised.amax((1, 2, 3)) - normalised.amin((1, 2, 3))).min() > 1.8


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
