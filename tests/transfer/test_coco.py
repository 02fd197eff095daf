import json
from pathlib import Path
from typing import Any

import pytest

from manyview.core.errors import UserError
from manyview.transfer.coco import annotation_files, is_coco, open_coco
from tests.transfer.made_objects import SIDE, annotation, coco, picture, write_coco


def test_a_folder_with_a_file_a_split_is_read(tmp_path: Path) -> None:
    train, test = open_coco(write_coco(tmp_path, coco(3), coco(2)), "boxes")
    assert (len(train), len(test)) == (3, 2)
    assert train.classes == ("cat", "dog")
    assert train[0].modalities["image"].shape == (3, SIDE, SIDE)
    assert len(train.target(0)["boxes"]) == 2


def test_the_published_layout_is_read_by_kind(tmp_path: Path) -> None:
    for kind in ("instances", "person_keypoints", "captions"):
        for split in ("train2017", "val2017"):
            file = tmp_path / "annotations" / f"{kind}_{split}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(coco(2)))
            for row in range(2):
                picture(tmp_path / split / f"{row}.png")
    assert annotation_files(tmp_path, "masks")["train"].name == "instances_train2017.json"
    assert annotation_files(tmp_path, "keypoints")["val"].name == "person_keypoints_val2017.json"
    train, test = open_coco(tmp_path, "keypoints")
    assert (len(train), len(test), train.keypoints) == (2, 2, ("nose", "left_eye", "right_eye"))


def test_roboflows_layout_is_read_and_its_test_split_wins(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("valid", 2), ("test", 1)):
        (tmp_path / split).mkdir()
        (tmp_path / split / "_annotations.coco.json").write_text(json.dumps(coco(count)))
        for row in range(count):
            picture(tmp_path / split / f"{row}.png")
    assert is_coco(tmp_path)
    train, test = open_coco(tmp_path, "boxes")
    assert (len(train), len(test)) == (3, 1)


def test_of_a_single_file_images_are_held_out(tmp_path: Path) -> None:
    write_coco(tmp_path, coco(20))
    train, test = open_coco(tmp_path / "train.json", "boxes")
    assert (len(train), len(test)) == (18, 2)
    assert any("held out" in line for line in train.told)
    assert (train.held_out, test.held_out) == (False, True)


def test_images_that_are_missing_damaged_or_of_another_size_are_counted(tmp_path: Path) -> None:
    content = coco(5)
    write_coco(tmp_path, content, coco(1))
    (tmp_path / "images" / "1.png").unlink()
    (tmp_path / "images" / "2.png").write_text("no image")
    picture(tmp_path / "images" / "3.png", width=20)
    content["images"][4]["file_name"] = 7
    (tmp_path / "train.json").write_text(json.dumps(content))
    train, _ = open_coco(tmp_path, "boxes")
    assert len(train) == 1
    told = " ".join(train.told)
    for what in ("file is not there", "is no image", "another size", "without a file name"):
        assert f"images left out, {'whose ' if what[0] in 'fi' else ''}" in told
        assert what in told
    assert "left out, of images that are not there: 8" in told


def test_sizes_that_the_json_does_not_have_are_read_from_the_images(tmp_path: Path) -> None:
    content = coco(1)
    del content["images"][0]["height"]
    del content["images"][0]["width"]
    write_coco(tmp_path, content, content)
    picture(tmp_path / "images" / "0.png", width=20, height=40)
    assert open_coco(tmp_path, "boxes")[0].images[0]["height"] == 40


def test_categories_need_not_be_in_the_order_of_their_ids(tmp_path: Path) -> None:
    content = coco(1)
    content["categories"].reverse()
    train, _ = open_coco(write_coco(tmp_path, content, content), "boxes")
    assert train.classes == ("cat", "dog")


WRONG: list[tuple[Any, str]] = [
    ("{", "cannot be read as JSON"),
    ("[1]", "no list of images"),
    ({**coco(2), "annotations": {}}, "no list of annotations"),
    ({**coco(2), "categories": []}, "needs categories"),
    ({**coco(2), "categories": [{"id": "1", "name": "x"}]}, "a whole number as id"),
    ({**coco(2), "categories": [{"id": 1, "name": "x"}, {"id": 1, "name": "y"}]}, "an id of its own"),
    ({**coco(2), "images": []}, "it lists none"),
    ({**coco(2), "images": [coco(2)["images"][0]] * 2}, "the same id"),
    ({**coco(2), "annotations": []}, "no object that can be used"),
    (coco(2, [annotation(10, [0, 0, 4, 4], 77)]), "unknown category ids"),
    ({**coco(2), "categories": [{"id": 1, "name": "x", "keypoints": [1]}]}, "no list of names"),
]


@pytest.mark.parametrize(("content", "line"), WRONG)
def test_what_is_no_coco_json_is_refused_in_one_line(tmp_path: Path, content: Any, line: str) -> None:
    write_coco(tmp_path, coco(2), coco(2))
    (tmp_path / "train.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=line) as error:
        open_coco(tmp_path, "boxes")
    assert "\n" not in str(error.value)


def test_splits_with_other_categories_two_train_splits_and_none_are_refused(tmp_path: Path) -> None:
    other = coco(1)
    other["categories"][0]["name"] = "horse"
    with pytest.raises(UserError, match="same categories"):
        open_coco(write_coco(tmp_path / "a", coco(1), other), "boxes")
    write_coco(tmp_path / "b", coco(1))
    (tmp_path / "b" / "train2.json").write_text("{}")
    with pytest.raises(UserError, match="both a train split"):
        open_coco(tmp_path / "b", "boxes")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "all.json").write_text("{}")
    with pytest.raises(UserError, match="'train' in its name"):
        open_coco(tmp_path / "c", "boxes")


def test_keypoints_need_categories_with_equally_many(tmp_path: Path) -> None:
    content = coco(1)
    content["categories"][1]["keypoints"] = ["one"]
    with pytest.raises(UserError, match="equally many keypoints"):
        open_coco(write_coco(tmp_path, content, content), "keypoints")


def test_an_image_that_cannot_be_decoded_is_one_line(tmp_path: Path) -> None:
    train, _ = open_coco(write_coco(tmp_path, coco(1), coco(1)), "boxes")
    file = tmp_path / "images" / "0.png"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match=r"0\.png cannot be read"):
        train.read(0)


@pytest.mark.parametrize("number", [2**63, 10**400], ids=["65 bits", "many digits"])
def test_an_image_id_beyond_64_bits_is_counted(number: int, tmp_path: Path) -> None:
    content = coco(2)
    content["images"][0]["id"] = number
    train, _ = open_coco(write_coco(tmp_path, content, coco(1)), "boxes")
    assert train.ids.shape == (1,)
    assert any("images left out, without a whole number as id" in line and line.endswith(": 1") for line in train.told)


def test_numbers_that_no_float_holds_are_counted(tmp_path: Path) -> None:
    content = coco(2)
    content["annotations"][0]["bbox"][0] = 10**400
    content["annotations"][1]["segmentation"][0][0] = 10**400
    content["annotations"][2]["area"] = 10**400
    train, _ = open_coco(write_coco(tmp_path, content, coco(1)), "masks")
    assert len(train.annotations) == 2
    assert [each["area"] for each in train.annotations] == [320, 320]


def test_splits_with_other_keypoints_are_refused(tmp_path: Path) -> None:
    other = coco(1)
    other["categories"][0]["keypoints"] = other["categories"][0]["keypoints"][::-1]
    with pytest.raises(UserError, match="val has other keypoints of 'cat' than train; both splits need the same"):
        open_coco(write_coco(tmp_path, coco(2), other), "keypoints")


def test_a_published_layout_without_the_file_of_the_task_says_which_one_it_lacks(tmp_path: Path) -> None:
    folder = tmp_path / "annotations"
    folder.mkdir()
    (folder / "instances_train2017.json").write_text(json.dumps(coco(2)))
    lacked = r"no person_keypoints_train\*.json, which has keypoints; it has instances_train2017.json"
    with pytest.raises(UserError, match=lacked):
        open_coco(tmp_path, "keypoints")
