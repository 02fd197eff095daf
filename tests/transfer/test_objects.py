from typing import Any

import pytest
import torch

from manyview.core.errors import UserError
from manyview.transfer.objects import Kind, ObjectImages, checked, edges, hold_out
from tests.transfer.made_objects import SIDE, annotation, coco


def made(annotations: list[Any], kind: Kind = "boxes", count: int = 2) -> ObjectImages:
    content = coco(count)
    return checked(
        "made", content["images"], annotations, content["categories"], lambda row: torch.zeros(3, 1, 1), kind
    )


def test_the_target_has_edges_classes_masks_and_keypoints_of_each_object() -> None:
    objects = [annotation(10, [4, 3, 16, 20], 1), annotation(10, [5, 3, 10, 10], 3)]
    found = made(objects, "masks").target(0)
    assert found["boxes"].tolist() == [[4, 3, 20, 23], [5, 3, 15, 13]]
    assert found["labels"].tolist() == [1, 2]
    assert found["masks"].sum((1, 2)).tolist() == [16 * 20, 10 * 10]
    points = made(objects, "keypoints").target(0)["keypoints"]
    assert points.shape == (2, 3, 3)
    assert points[0, 0].tolist() == [4, 3, 2]


def test_an_image_without_objects_has_an_empty_target() -> None:
    for kind in ("boxes", "masks", "keypoints"):
        found = made([annotation(10, [4, 3, 16, 20])], kind).target(1)
        assert found["boxes"].shape == (0, 4)
        assert all(len(each) == 0 for each in found.values())


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("text", "no table"),
        (annotation(99, [0, 0, 5, 5]), "images that are not there"),
        (annotation(10, [0, 0, 5, 5], 2), "unknown category ids"),
        (annotation(10, [0, 0, 5, 5], category_id="cat"), "unknown category ids"),
        (annotation(10, [0, 0, 5, 5], bbox=[1, 2, 3]), "four numbers"),
        (annotation(10, [0, 0, 5, 5], bbox=[1, 2, -3, 4]), "four numbers"),
        (annotation(10, [0, 0, 5, 5], bbox=[1, 2, float("inf"), 4]), "four numbers"),
        (annotation(10, [0, 0, 5, 5], bbox=None), "four numbers"),
    ],
)
def test_annotations_that_make_no_sense_are_left_out_and_counted(bad: Any, why: str) -> None:
    data = made([annotation(10, [4, 3, 16, 20]), bad, bad])
    assert len(data.annotations) == 1
    assert any("objects left out" in line and why in line and line.endswith(": 2") for line in data.told)


def test_objects_without_a_mask_or_keypoints_are_left_out_where_these_are_wanted() -> None:
    bare = annotation(10, [4, 3, 16, 20], segmentation=[], keypoints=[1, 2])
    assert len(made([bare]).annotations) == 1
    assert made([bare, annotation(10, [4, 3, 9, 9])], "masks").told[0].endswith("without a mask that fits the image: 1")
    assert "without the keypoints" in made([bare, annotation(10, [4, 3, 9, 9])], "keypoints").told[0]


def test_crowds_and_boxes_outside_are_scored_on_but_not_trained_on() -> None:
    objects = [
        annotation(10, [4, 3, 16, 20], iscrowd=1),
        annotation(10, [40, 3, 16, 20]),
        annotation(10, [5, 5, 0, 4]),
        annotation(10, [20, 20, 30, 8]),
    ]
    data = made(objects)
    assert len(data.annotations) == 4
    assert data.target(0)["boxes"].tolist() == [[20, 20, SIDE, 28]]
    told = " ".join(data.told)
    assert "crowds, which are not trained on: 1" in told
    assert "boxes without area in their image, which are not trained on: 2" in told
    assert "boxes that go beyond their image, cut at its edge in training: 1" in told
    assert "images without objects: 1" in told


def test_only_images_with_objects_are_trained_on() -> None:
    assert made([annotation(11, [4, 3, 16, 20]), annotation(10, [4, 3, 16, 20], iscrowd=1)]).rows_with_objects() == [1]
    unseen = annotation(10, [4, 3, 16, 20], keypoints=[0] * 9)
    assert made([unseen, annotation(11, [4, 3, 9, 9])], "keypoints").rows_with_objects() == [1]


def test_every_annotation_has_an_id_of_its_own_from_1_and_an_area() -> None:
    objects = [annotation(10, [4, 3, 16, 20], id=0, area=None), annotation(10, [4, 3, 16, 20], id=0)]
    data = made(objects)
    assert [each["id"] for each in data.annotations] == [1, 2]
    assert data.annotations[0]["area"] == 320


def test_left_and_right_keypoints_change_places_in_a_mirrored_image() -> None:
    data = made([annotation(10, [4, 3, 16, 20])], "keypoints")
    assert data.mirrored == [0, 2, 1]
    data.categories[0]["keypoints"] = ["a", "b", "c"]
    assert made([annotation(10, [4, 3, 16, 20])]).mirrored is not None
    nameless = ObjectImages("x", [], [], [{"id": 1, "name": "x", "keypoints": ["a", "b"]}], data.read)
    assert nameless.mirrored is None


def test_other_annotations_make_other_ids() -> None:
    first, second = made([annotation(10, [4, 3, 16, 20])]), made([annotation(10, [4, 3, 16, 21])])
    assert first.ids[0] != second.ids[0]
    assert first.ids[1] == second.ids[1]


def test_a_tenth_of_the_images_is_held_out_by_id() -> None:
    objects = [annotation(10 + row, [4, 3, 16, 20]) for row in range(20)]
    train, test = hold_out(made(objects, count=20))
    assert (len(train), len(test)) == (18, 2)
    assert not {each["id"] for each in train.images} & {each["id"] for each in test.images}
    assert {each["image_id"] for each in test.annotations} == {each["id"] for each in test.images}
    with pytest.raises(UserError, match="too few"):
        hold_out(made(objects, count=2))


def test_edges_are_cut_at_the_image() -> None:
    assert edges([-3, 5, 10, 100], 32, 24) == [0, 5, 7, 32]
