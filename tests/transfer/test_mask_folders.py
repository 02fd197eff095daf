"""Layouts of pictures and masks, those of the published sets among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.transfer.mask_folders import hold_out, open_masks
from manyview.transfer.prepared import DataSource
from tests import tiny
from tests.transfer.pictures import folder, pair


def opened(root: Path, mask: str | None = None, **options: object) -> tuple[int, int | None, str, tuple[str, ...]]:
    train, test, name = open_masks(DataSource(str(root), options), mask)
    return len(train), None if test is None else len(test), name, train.modalities


def test_images_and_masks_without_splits_have_no_test(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 3)
    assert opened(tmp_path) == (3, None, "masks", ("images", "masks"))


def test_splits_above_images_and_masks(tmp_path: Path) -> None:
    assert opened(folder(tmp_path, 4)) == (4, 4, "masks", ("images", "masks"))


def test_splits_below_images_and_masks_as_ade20k_has_them(tmp_path: Path) -> None:
    for split, count in (("training", 4), ("validation", 2)):
        pair(tmp_path / "images" / split, tmp_path / "annotations" / split, count)
    assert opened(tmp_path) == (4, 2, "annotations", ("images", "annotations"))


def test_folders_beside_each_other_as_camvid_has_them(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("val", 1), ("test", 2)):
        pair(tmp_path / split, tmp_path / f"{split}annot", count)
    assert opened(tmp_path) == (4, 2, "masks", ("image", "masks"))


def test_lists_as_voc_has_them(tmp_path: Path) -> None:
    pair(tmp_path / "JPEGImages", tmp_path / "SegmentationClass", 5, palette=True)
    lists = tmp_path / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("0\n1\n4\n")
    (lists / "val.txt").write_text("2\n")
    assert opened(tmp_path) == (3, 1, "SegmentationClass", ("image", "SegmentationClass"))
    assert opened(tmp_path, split="val")[:2] == (1, None)  # which is trained on, and not scored too
    with pytest.raises(UserError, match=r"there is no .*trainval.txt; give --data.split"):
        opened(tmp_path, split="trainval")


def test_modalities_with_one_of_label_maps(tmp_path: Path) -> None:
    tiny.sensors(tmp_path, 3)
    for split in ("train", "test"):
        pair(tmp_path / "unused", tmp_path / split / "labels", 3)
    train, test, name, modalities = opened(tmp_path)
    assert (train, test, name) == (3, 3, "labels")
    assert modalities == ("rgb", "depth", "thermal", "labels")


def test_scenes_render_what_views_ask_for() -> None:
    train, test, name = open_masks(DataSource("scenes", {"count": 5, "size": 8}, ("L", "depth")), None)
    assert (len(train), name, train.modalities) == (5, "semantic", ("image", "depth", "semantic"))
    assert test is not None
    assert not set(train.ids.tolist()) & set(test.ids.tolist())


def test_where_there_is_no_mask_or_are_several_it_is_said_which_there_are(tmp_path: Path) -> None:
    tiny.pictures(tmp_path / "plain", 3)
    with pytest.raises(UserError, match=r"mask: .*plain has no masks: it has image; expected a folder images/"):
        opened(tmp_path / "plain")
    pair(tmp_path / "two" / "images", tmp_path / "two" / "masks", 2)
    pair(tmp_path / "two" / "images", tmp_path / "two" / "labels", 2)
    with pytest.raises(UserError, match="several masks, labels, masks; give --mask"):
        opened(tmp_path / "two")
    assert opened(tmp_path / "two", "labels")[2] == "labels"
    with pytest.raises(UserError, match="has no 'mask'; it has images, labels, masks"):
        opened(tmp_path / "two", "mask")


def test_a_fifth_is_held_out_by_ids_alone(tmp_path: Path) -> None:
    pair(tmp_path / "images", tmp_path / "masks", 10)
    data, _, _ = open_masks(DataSource(str(tmp_path), {}), None)
    train, test = hold_out(data)
    assert (len(train), len(test)) == (8, 2)
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    with pytest.raises(UserError, match="2 pictures are too few"):
        hold_out(test)


def test_nothing_is_scored_on_what_it_was_trained_on(tmp_path: Path) -> None:
    assert opened(folder(tmp_path / "split", 4), split="test")[:2] == (4, None)
    for split in ("train", "test"):
        pair(tmp_path / "camvid" / split, tmp_path / "camvid" / f"{split}annot", 4)
    assert opened(tmp_path / "camvid", split="test")[:2] == (4, None)
    train, test, _ = open_masks(DataSource("scenes", {"count": 5, "size": 8, "split": "test"}), None)
    usual = open_masks(DataSource("scenes", {"count": 5, "size": 8}), None)[1]
    assert usual is not None
    assert (test, train.name(0)) == (None, usual.name(0))


def test_a_mask_that_a_layout_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mask: scenes have their masks in 'semantic'"):
        open_masks(DataSource("scenes", {"count": 5, "size": 8}), "instance")
    pair(tmp_path / "train", tmp_path / "trainannot", 4)
    assert opened(tmp_path, "masks")[2] == "masks"
    with pytest.raises(UserError, match=r"mask: .* has no 'instance'"):
        opened(tmp_path, "instance")
