"""A jigsaw is nine patches of a crop, one out of each cell, in an order that is drawn for each picture."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.views import Augmentation, ViewPipeline
from manyview.views.jigsaw import cut_patches, jigsaw_of, patch_corners
from tests.views.oracle import pictures

PLAIN = ViewPipeline([Augmentation(32, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1))])
IDS = torch.arange(12) * 5


def views(ids: Tensor = IDS, **options: int) -> list[Tensor]:
    return PLAIN.of({"image": 1}, jigsaw=True)({"image": pictures(12)[ids // 5]}, ids, **options)["image"]


@pytest.mark.parametrize(("size", "side", "patch"), [(224, 255, 64), (64, 72, 18), (32, 36, 9)])
def test_sizes_are_the_published_ones_for_224_pixels_and_in_proportion_for_others(
    size: int, side: int, patch: int
) -> None:
    made = jigsaw_of(Augmentation(size, jitter=(0.4, 0.4, 0.4, 0.1), flip=0.3))
    assert made == Augmentation(side, (0.6, 1.0), flip=0.3, patch=patch)


def test_each_cell_gives_one_patch_anywhere_in_it_and_their_order_is_drawn() -> None:
    u = torch.rand(4000, 27, generator=torch.Generator().manual_seed(1)).numpy()
    corners = patch_corners(255, 64, u)
    assert corners.shape == (4000, 9, 2)
    assert (corners % 85).min() == 0
    assert (corners % 85).max() == 85 - 64
    cells = torch.from_numpy(corners // 85) @ torch.tensor([3, 1])
    assert torch.equal(cells.sort(1).values, torch.arange(9).expand(4000, 9))
    first = cells[:, 0].bincount(minlength=9) / 4000
    torch.testing.assert_close(first, torch.full((9,), 1 / 9), atol=0.02, rtol=0)


def test_patches_are_cut_out_of_each_picture_where_its_own_numbers_say() -> None:
    planes, one = torch.rand(2, 5, 20, 20), Augmentation(20, patch=4)
    keys = torch.arange(5)
    found = cut_patches(planes, one, keys)
    assert found.shape == (5, 9, 2, 4, 4)
    for picture in range(5):
        alone = cut_patches(planes[:, picture : picture + 1], one, keys[picture : picture + 1])[0]
        assert torch.equal(found[picture], alone)
        places = [(top, left) for top in range(17) for left in range(17)]
        for patch in found[picture]:
            assert any(torch.equal(patch, planes[:, picture, t : t + 4, x : x + 4]) for t, x in places)


def test_the_jigsaw_is_the_last_copy_and_the_others_are_as_without_it() -> None:
    plain, jigsaw = views(seed=3, epoch=2)
    assert torch.equal(plain, PLAIN({"image": pictures(12)}, IDS, seed=3, epoch=2)["image"][0])
    assert jigsaw.shape == (12, 9, 3, 9, 9)
    assert jigsaw.dtype == torch.float32


def test_it_shows_parts_of_a_crop_without_jitter_as_the_network_sees_them() -> None:
    whole = ViewPipeline([PLAIN.augmentations[0], Augmentation(36, (0.6, 1.0))])
    crops = whole({"image": pictures(12)}, IDS)["image"][1]
    for crop, patches in zip(crops, views()[1], strict=True):
        everywhere = crop.unfold(1, 9, 1).unfold(2, 9, 1).permute(1, 2, 0, 3, 4)  # (28, 28, 3, 9, 9)
        found = [(everywhere - patch).abs().amax((2, 3, 4)) for patch in patches]
        assert all(each.min() < 1e-6 for each in found)
        cells = {tuple((each == each.min()).nonzero()[0].div(12, rounding_mode="floor").tolist()) for each in found}
        assert len(cells) == 9


def test_it_depends_on_seed_epoch_and_id_only() -> None:
    some = torch.tensor([7, 2, 9])
    assert torch.equal(views(seed=1)[1][some], views(IDS[some], seed=1)[1])
    for seed, epoch in ((2, 0), (1, 4)):
        assert not torch.allclose(views(seed=1)[1], views(seed=seed, epoch=epoch)[1])


def test_views_of_one_geometry_have_the_same_patches_and_those_of_their_own_have_others() -> None:
    raw = {"rgb": pictures(6), "same": pictures(6)}
    plain = ViewPipeline([Augmentation(32, (0.2, 1.0))])
    shared = plain.of({"rgb": 1, "same": 1}, jigsaw=True)(raw, IDS[:6])
    assert torch.equal(shared["rgb"][1], shared["same"][1])
    own = plain.of({"rgb": 1, "same": 1}, jigsaw=True, geometry="own")(raw, IDS[:6])
    assert not torch.allclose(own["rgb"][1], own["same"][1])


def test_all_views_have_it_last_whatever_their_number_of_copies() -> None:
    made = ViewPipeline([PLAIN.augmentations[0]] * 3).of({"L": 3, "ab": 1}, jigsaw=True)(
        {"image": pictures(4)}, IDS[:4]
    )
    assert [len(copies) for copies in made.values()] == [4, 4]
    assert [copies[-1].shape for copies in made.values()] == [(4, 9, 1, 9, 9), (4, 9, 2, 9, 9)]


def test_a_worker_makes_the_jigsaw_that_a_batch_makes() -> None:
    pipeline, images = PLAIN.of({"image": 1}, jigsaw=True), pictures(12)
    one_by_one = [pipeline.prepare({"image": image}, int(id))["image"] for image, id in zip(images, IDS, strict=True)]
    prepared = [torch.stack([copies[k] for copies in one_by_one]) for k in range(2)]
    found = pipeline.finish({"image": prepared}, IDS)["image"][1]
    off = (found - views()[1]).abs() * 0.229 * 255
    assert off.median() <= 1
    assert off.quantile(0.95) <= 2


def test_a_patch_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(ValueError, match="patch: expected 1 to 10, a third of size=32, got 11"):
        Augmentation(32, patch=11)
