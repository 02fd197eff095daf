"""Small data sets with objects, written for tests as people have them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 32
PERSON = ["nose", "left_eye", "right_eye"]


def picture(path: Path, width: int = SIDE, height: int = SIDE, seed: int = 0) -> None:
    """Writes an image of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def annotation(image: int, box: list[float], category: int = 1, **more: Any) -> dict[str, Any]:
    """An object with a box, a polygon around it, and keypoints at its corner."""
    left, top, across, down = box
    corners = [left, top, left + across, top, left + across, top + down, left, top + down]
    points = [left, top, 2, left + across, top, 2, 0, 0, 0]
    made = {"id": 7, "image_id": image, "category_id": category, "bbox": box, "area": across * down, "iscrowd": 0,
            "segmentation": [corners], "keypoints": points, "num_keypoints": 2}  # fmt: skip
    return {**made, **more}


def coco(count: int, annotations: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """The content of a COCO JSON with so many images, each with two objects unless others are given."""
    images = [{"id": 10 + row, "file_name": f"{row}.png", "height": SIDE, "width": SIDE} for row in range(count)]
    usual = [annotation(10 + row, [4 + at, 3, 16, 20], 1 + 2 * at) for row in range(count) for at in (0, 1)]
    names = [{"id": 1, "name": "cat", "keypoints": PERSON}, {"id": 3, "name": "dog", "keypoints": PERSON}]
    return {"images": images, "annotations": usual if annotations is None else annotations, "categories": names, **more}


def write_coco(folder: Path, train: dict[str, Any], test: dict[str, Any] | None = None) -> Path:
    """Writes train.json and val.json beside a folder with their images."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, content in (("train", train), ("val", test)):
        if content is not None:
            (folder / f"{split}.json").write_text(json.dumps(content))
            for each in content["images"]:
                picture(folder / "images" / each["file_name"], seed=each["id"])
    return folder
