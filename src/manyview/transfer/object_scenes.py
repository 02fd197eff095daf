"""The generated scenes as images with objects: every solid has a box, a mask and six keypoints."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.data.scenes.dataset import Scenes
from manyview.data.scenes.description import box
from manyview.transfer.objects import Entry, Kind, ObjectImages, checked
from manyview.transfer.run_lengths import encode_mask

POINTS = tuple(f"point {number}" for number in range(1, 7))
SKY_AND_GROUND = 2  # values of the semantic mask below that of the first class


def open_object_scenes(
    kind: Kind, *, count: int = 500, test: int = 100, size: int = 128, seed: int = 0
) -> tuple[ObjectImages, ObjectImages]:
    """So many training scenes of so many pixels, and those to score on; the class of an object is its shape."""
    return _split("train", count, size, seed, kind), _split("test", test, size, seed, kind)


def _split(split: str, count: int, size: int, seed: int, kind: Kind) -> ObjectImages:
    scenes = Scenes(count, size=size, seed=seed, split=split, modalities=("image", "instance", "semantic"))
    pixels = scenes.batch(torch.arange(count))
    images = [
        {"id": row + 1, "file_name": f"{scenes.name(row)}.png", "height": size, "width": size} for row in range(count)
    ]
    found: list[Entry] = []
    for row in range(count):
        points = _keypoints(scenes, row) if kind == "keypoints" else {}
        found += _objects(row + 1, pixels["instance"][row, 0], pixels["semantic"][row, 0], points)
    names = {"keypoints": list(POINTS)} if kind == "keypoints" else {}
    categories = [{"id": number, "name": name, **names} for number, name in enumerate(scenes.classes, start=1)]
    return checked(f"scenes {split}", images, found, categories, lambda row: pixels["image"][row], kind)


def _objects(image: int, instances: Tensor, semantic: Tensor, points: dict[int, list[float]]) -> list[Entry]:
    """The objects of a scene by its masks, with their keypoints where these are given by instance."""
    found: list[Entry] = []
    for number in instances.unique().tolist():
        if not number:
            continue
        mask = instances == number
        left, top, right, bottom = box(mask).tolist()
        found.append(
            {
                "image_id": image,
                "category_id": int(semantic[mask][0]) - SKY_AND_GROUND + 1,
                "bbox": [left, top, right - left, bottom - top],
                "area": int(mask.sum()),
                "segmentation": encode_mask(mask),
                **({"keypoints": points[number]} if points else {}),
            }
        )
    return found


def _keypoints(scenes: Scenes, row: int) -> dict[int, list[float]]:
    """The keypoints of each instance of a scene as COCO writes them: column, row and 2, or three zeros if hidden."""
    scene = scenes.describe(row)
    seen = torch.cat([scene.keypoints, torch.full_like(scene.keypoints[..., :1], 2)], -1) * scene.visible[..., None]
    return {number: points.flatten().tolist() for number, points in zip(scene.instances.tolist(), seen, strict=True)}
