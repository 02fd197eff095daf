from pathlib import Path

import torch
from PIL import Image

from manyview.transfer.detection_pictures import SIDE, drawn, save_pictures
from manyview.transfer.object_data import open_objects
from tests.transfer.made_objects import coco, write_coco


def test_objects_are_drawn_over_their_image_and_nothing_over_others(tmp_path: Path) -> None:
    data, _ = open_objects(write_coco(tmp_path, coco(2), coco(1)), "masks")
    image = data.read(0)
    found = [{**each, "score": 0.9} for each in data.annotations[:2]]
    assert not torch.equal(drawn(data, image, found), image)
    assert torch.equal(drawn(data, image, []), image)


def test_a_picture_of_the_first_images_is_written(tmp_path: Path) -> None:
    data, _ = open_objects(write_coco(tmp_path, coco(2), coco(1)), "keypoints")
    save_pictures(data, [{**each, "score": 0.9} for each in data.annotations], tmp_path / "found.png")
    with Image.open(tmp_path / "found.png") as image:
        assert image.width > 2 * SIDE
