"""Masks on disk, of any kind, as classes; legends that do not fit; what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.core.errors import UserError
from manyview.data import Unreadable
from manyview.data.paired import Paired
from manyview.data.scenes import Scenes
from manyview.transfer.iou import IGNORED
from manyview.transfer.legend import Legend
from manyview.transfer.masks import MASK, check_legend, check_readable, having_masks, legend_of_masks, masked
from tests.transfer.pictures import COLOURS, blocks, pair

THREE = Legend(("a", "b", "c"), {0: 0, 1: 1, 2: 2}, source="legend.txt")


def opened(root: Path) -> Paired:
    return Paired({"images": root / "images", "masks": root / "masks"})


@pytest.mark.parametrize("kind", [{}, {"palette": True}, {"colours": True}])
def test_numbers_palettes_and_colours_give_the_same_classes(tmp_path: Path, kind: dict[str, bool]) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3, **kind)
    values = {(r << 16) + (g << 8) + b: place for place, (r, g, b) in enumerate(COLOURS)}
    legend = Legend(THREE.classes, values, colours=True) if "colours" in kind else THREE
    data = masked(opened(tmp_path), "masks", legend)
    assert data.modalities == ("images", MASK)
    for row in range(3):
        sample = data[row]
        assert sample.modalities["images"].shape == (3, 32, 32)
        assert np.array_equal(sample.modalities[MASK][0].numpy(), blocks(int(Path(data.name(row)).stem)))


def test_numbers_of_sixteen_bits_are_read(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 1)
    Image.fromarray(blocks(0).astype(np.uint16) * 300).save(tmp_path / "masks" / "0.png")
    data = masked(opened(tmp_path), "masks", Legend(("a", "b"), {300: 0, 600: 1}))
    assert set(data[0].modalities[MASK].unique().tolist()) == {0, 1, IGNORED}


def test_a_mask_of_another_size_than_its_picture_is_unreadable_in_words(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 1)
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "masks" / "0.png")
    with pytest.raises(Unreadable, match="its mask has 6 x 4 pixels, its images 32 x 32"):
        masked(opened(tmp_path), "masks", THREE)[0]


def test_where_all_masks_have_another_size_one_line_says_so(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3)
    data = masked(opened(tmp_path), "masks", THREE)
    check_readable(data)
    for number in range(3):
        Image.fromarray(np.zeros((8, 16), np.uint8)).save(tmp_path / "masks" / f"{number}.png")
    with pytest.raises(UserError, match=r"data: none of 3 pictures with masks .* its mask has 16 x 8 pixels"):
        check_readable(data)


def test_scenes_are_made_many_at_once_and_one_by_one_alike() -> None:
    data = Scenes(3, size=8, modalities=("image", "semantic"))
    every = masked(data, "semantic", Legend(("ground", "sky"), {1: 0, 0: 1}))
    together = every.batch(torch.arange(3))  # type: ignore[attr-defined]
    assert set(together) == {"image", MASK}
    assert all(torch.equal(together[MASK][row], every[row].modalities[MASK]) for row in range(3))
    assert together[MASK].dtype == torch.uint8


def test_pictures_without_a_mask_are_counted_and_left_out(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 4)
    (tmp_path / "masks" / "2.png").unlink()
    data, lacking = having_masks(opened(tmp_path), "masks", ["images"])
    assert (len(data), lacking) == (3, 1)
    for number in (0, 1, 3):
        (tmp_path / "images" / f"{number}.png").unlink()
    with pytest.raises(UserError, match="no picture has a mask in 'masks'"):
        having_masks(opened_apart(tmp_path), "masks", ["images"])


def opened_apart(root: Path) -> Paired:
    (root / "more").mkdir()
    for number in (0, 1):
        Image.fromarray(blocks(number)).save(root / "more" / f"{number}.png")
    return Paired({name: root / name for name in ("images", "masks", "more")})


def test_without_a_legend_classes_are_the_numbers_of_all_masks_but_the_ignored(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3)
    assert legend_of_masks([opened(tmp_path)], "masks", [255]).classes == ("0", "1", "2")
    assert legend_of_masks([opened(tmp_path)], "masks", [0]).classes == ("1", "2")
    with pytest.raises(UserError, match="hold 1 values"):
        legend_of_masks([opened(tmp_path)], "masks", [0, 1])


def test_a_class_that_only_the_test_has_counts(tmp_path: Path) -> None:
    pair(tmp_path / "a" / "images", tmp_path / "a" / "masks", 1)
    pair(tmp_path / "b" / "images", tmp_path / "b" / "masks", 1)
    Image.fromarray(np.full((8, 8), 7, dtype=np.uint8)).save(tmp_path / "b" / "masks" / "0.png")
    both = [opened(tmp_path / name) for name in "ab"]
    assert legend_of_masks(both, "masks", [255]).classes == (*legend_of_masks(both[:1], "masks", [255]).classes, "7")


def test_colours_need_a_legend(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 2, colours=True)
    with pytest.raises(UserError, match="are colours; give --legend"):
        legend_of_masks([opened(tmp_path)], "masks", [])
    with pytest.raises(UserError, match="is of numbers"):
        check_legend(opened(tmp_path), "masks", THREE, [])


def test_a_legend_that_does_not_fit_is_refused_and_few_strange_values_are_told(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3)
    data = opened(tmp_path)
    assert check_legend(data, "masks", THREE, []) == []
    with pytest.raises(
        UserError, match=r"it does not fit: .*% of the pixels of 3 training masks have values that legend.txt lacks"
    ):
        check_legend(data, "masks", Legend(("x", "y"), {2: 0, 7: 1}, source="legend.txt"), [])
    (told,) = check_legend(data, "masks", Legend(("x", "y"), {0: 0, 1: 1}, source="legend.txt"), [])
    assert "such as 2; they are ignored" in told
    with pytest.raises(UserError, match=r"100% of the pixels of 3 test masks"):
        check_legend(data, "masks", Legend(("x", "y"), {7: 0, 8: 1}, source="legend.txt"), [], "test")
    assert check_legend(data, "masks", Legend(("x", "y"), {0: 0, 1: 1}, source="legend.txt"), [2]) == []


def test_how_much_a_legend_leaves_without_class_is_told(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3)
    (told,) = check_legend(opened(tmp_path), "masks", Legend(("x", "y"), {0: 255, 1: 0, 2: 1}, source="own"), [])
    share = float(told.partition("%")[0]) / 100
    assert share == pytest.approx(sum((blocks(n) == 0).mean() for n in range(3)) / 3, abs=1e-3)
    assert told.endswith("of the pixels of 3 training masks are of no class in own")


def test_masks_of_numbers_and_of_colours_do_not_mix(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 2)
    pair(tmp_path / "images", tmp_path / "masks", 1, colours=True, first=5)
    with pytest.raises(UserError, match="some masks of 'masks' hold numbers and some colours"):
        legend_of_masks([opened(tmp_path)], "masks", [])
