from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from manyview.transfer.detection_pictures import BEST, SIDE, drawn, save_pictures, shown
from manyview.transfer.object_data import open_objects
from manyview.transfer.objects import Kind, ObjectImages
from tests.transfer.made_objects import coco, write_coco


def opened(folder: Path, kind: Kind, **more: Any) -> ObjectImages:
    return open_objects(write_coco(folder, coco(2, **more), coco(1)), kind)[0]


def changed(data: ObjectImages, found: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    """Where a grey picture of the first image differs with objects drawn over it."""
    plain = Image.new("RGB", (320, 320), (128, 128, 128))
    there: np.ndarray[Any, Any] = (np.asarray(drawn(data, 0, plain, found)) != np.asarray(plain)).any(2)
    return there


def test_boxes_are_drawn_in_the_scale_of_the_picture(tmp_path: Path) -> None:
    data = opened(tmp_path, "boxes")
    there = changed(data, [{**data.objects(0)[0], "bbox": [10, 10, 16, 20], "score": 0.9}])
    assert there[100:300, 100].all()
    assert there[300, 100:260].all()
    assert not there[150:290, 110:250].any()
    assert not changed(data, []).any()


def test_masks_and_keypoints_are_drawn_where_the_task_has_them(tmp_path: Path) -> None:
    kinds: tuple[Kind, ...] = ("boxes", "masks", "keypoints")
    areas = []
    for kind in kinds:
        data = opened(tmp_path / kind, kind)
        areas.append(changed(data, data.objects(0)[:1]).sum())
    assert areas[1] > 5 * areas[0]
    assert areas[0] < areas[2] < areas[1]


def test_a_skeleton_joins_the_keypoints_that_can_be_seen(tmp_path: Path) -> None:
    plain = opened(tmp_path / "plain", "keypoints")
    names = [{"id": 1, "name": "cat", "keypoints": ["a", "b", "c"], "skeleton": [[1, 2], [2, 3]]},
             {"id": 3, "name": "dog", "keypoints": ["a", "b", "c"], "skeleton": [[1, 9]]}]  # fmt: skip
    train = coco(2, categories=names)
    joined = open_objects(write_coco(tmp_path / "joined", train, coco(1, categories=names)), "keypoints")[0]
    found = [{**plain.objects(0)[0], "keypoints": [2, 30, 2, 30, 30, 2, 0, 0, 0]}]
    more = changed(joined, found) & ~changed(plain, found)
    assert more[300, 60:260].all()  # from the first to the second
    assert not more[:290].any()  # the third is hidden
    assert joined.categories[1]["skeleton"] == []  # there is no ninth keypoint


def test_names_are_inside_the_picture_and_do_not_cover_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = opened(tmp_path, "boxes")
    places: list[tuple[float, float]] = []
    monkeypatch.setattr(ImageDraw.ImageDraw, "text", lambda self, xy, *rest: places.append(xy))
    at_the_edge = [{**data.objects(0)[0], "bbox": [31, 0, 1, 1], "score": 0.9}]
    changed(data, at_the_edge * 5)
    assert 1 <= len(places) < 5
    assert all(0 <= x < 300 and y >= 0 for x, y in places)
    assert len(set(places)) == len(places)


def test_the_best_are_shown_where_no_score_is_high() -> None:
    found = [{"image_id": 1, "score": score} for score in (0.1, 0.3, 0.2, 0.05, 0.25)]
    assert [each["score"] for each in shown(found, 1)] == [0.3, 0.25, 0.2][:BEST]
    assert [each["score"] for each in shown([*found, {"image_id": 1, "score": 0.6}], 1)] == [0.6]
    assert shown(found, 2) == []


def test_a_picture_has_what_is_annotated_above_what_was_found(tmp_path: Path) -> None:
    data = opened(tmp_path, "keypoints")
    save_pictures(data, [{**each, "score": 0.9} for each in data.annotations], tmp_path / "found.png")
    with Image.open(tmp_path / "found.png") as image:
        assert image.width > 2 * SIDE
        assert image.height > 2 * SIDE
