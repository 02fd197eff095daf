from __future__ import annotations

import pytest
import torch

from manyview.data.scenes.dataset import Scenes
from manyview.data.scenes.description import relation, with_article

SLACK = 1.5  # pixels: the tip of a cone is thinner than the distance between two rays


def test_boxes_are_tight_around_the_instances() -> None:
    scenes = Scenes(25, modalities=("instance",))
    for row in range(25):
        mask, told = scenes[row].modalities["instance"][0], scenes.describe(row)
        assert told.instances.tolist() == [n for n in mask.unique().tolist() if n]
        for number, box in zip(told.instances, told.boxes.long(), strict=True):
            left, top, right, bottom = box.tolist()
            own = mask == number
            assert own.sum() == own[top:bottom, left:right].sum()
            for edge in (own[top], own[bottom - 1], own[:, left], own[:, right - 1]):
                assert edge.any()


def test_visible_keypoints_lie_in_their_box() -> None:
    scenes = Scenes(25, size=64)
    seen = 0
    for row in range(25):
        told = scenes.describe(row)
        assert told.keypoints.shape == (len(told.shapes), 6, 2)
        for box, points, visible in zip(told.boxes, told.keypoints, told.visible, strict=True):
            inside = (points[visible] >= box[:2] - SLACK) & (points[visible] <= box[2:] + SLACK)
            assert inside.all()
        seen += int(told.visible[0].sum())
    assert 40 < seen < 120  # of 150 on main objects: about half of a solid's surface faces the camera


def test_keypoints_scale_with_the_picture() -> None:
    small, large = Scenes(3, size=32).describe(2), Scenes(3, size=64).describe(2)
    torch.testing.assert_close(small.keypoints[0] * 2, large.keypoints[0], atol=1e-3, rtol=0)
    assert torch.equal(small.visible[0], large.visible[0])


def test_a_scene_in_which_nothing_is_seen_has_no_boxes() -> None:
    scenes = Scenes(50, size=1)
    told = next(each for each in map(scenes.describe, range(50)) if not each.shapes)
    shapes = [tuple(each.shape) for each in (told.instances, told.boxes, told.keypoints, told.visible)]
    assert shapes == [(0,), (0, 4), (0, 6, 2), (0, 6)]


def test_a_caption_tells_the_main_shape_first_and_the_floor_last() -> None:
    scenes = Scenes(60)
    for row in range(60):
        text = scenes.describe(row).caption
        nouns = [word for word in text.split() if word in scenes.classes]
        assert nouns[0] == scenes.classes[int(scenes.labels[row])]
        assert text.endswith(" floor")
        assert text.startswith(("a ", "an "))
        assert not any(f" a {vowel}" in f" {text}" for vowel in "aeiou")


@pytest.mark.parametrize(("column", "expected"), [(0, "right of"), (8, "in front of"), (15, "left of")])
def test_where_the_main_object_is_depends_on_the_picture(column: int, expected: str) -> None:
    mask = torch.zeros(16, 16, dtype=torch.uint8)
    mask[8:12, 7:10] = 1
    mask[4, column] = 2
    assert relation(mask, 1) == expected


def test_vowels_take_an() -> None:
    assert with_article("orange cone") == "an orange cone"
    assert with_article("red cone") == "a red cone"


def test_a_caption_names_only_what_is_visible() -> None:
    scenes = Scenes(40, modalities=("instance",))
    for row in range(40):
        text = scenes.describe(row).caption
        nouns = [word for word in text.split() if word in scenes.classes]
        assert len(nouns) <= len(scenes.describe(row).shapes)
