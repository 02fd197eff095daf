"""Pictures of what a detector finds: boxes with their class and score, masks, keypoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torchvision.transforms.functional import resize
from torchvision.utils import draw_bounding_boxes, draw_keypoints, draw_segmentation_masks, save_image

from manyview.core.atomic import atomic_write
from manyview.transfer.objects import Entry, ObjectImages
from manyview.transfer.run_lengths import decode_mask

SHOWN = 8  # images
SIDE = 256  # pixels of a picture
LEAST = 0.5  # score of what is drawn
COLOURS = ("red", "lime", "cyan", "magenta", "yellow", "orange")


def save_pictures(data: ObjectImages, predictions: Sequence[Entry], path: Path) -> None:
    """Writes one PNG of the first images with what was found in them."""
    tiles = []
    for row in range(min(SHOWN, len(data))):
        image = data.images[row]
        found = [each for each in predictions if each["image_id"] == image["id"] and each["score"] >= LEAST]
        tiles.append(_square(drawn(data, data.read(row), found)))
    with atomic_write(path) as draft:
        save_image(torch.stack(tiles).float() / 255, draft, nrow=4, format="png")


def drawn(data: ObjectImages, image: Tensor, found: Sequence[Entry]) -> Tensor:
    """An image (3, H, W) uint8 with objects drawn over it."""
    if not found:
        return image
    names = {each["id"]: each["name"] for each in data.categories}
    colours = [COLOURS[each["category_id"] % len(COLOURS)] for each in found]
    height, width = image.shape[1:]
    if "segmentation" in found[0]:
        masks = torch.stack([decode_mask(each["segmentation"], height, width).bool() for each in found])
        image = draw_segmentation_masks(image, masks, alpha=0.4, colors=colours)
    edges = torch.tensor([each["bbox"] for each in found])
    edges = torch.cat([edges[:, :2], edges[:, :2] + edges[:, 2:]], 1)
    labels = [f"{names[each['category_id']]} {each['score']:.2f}" for each in found]
    image = draw_bounding_boxes(image, edges, labels, colors=colours)
    if "keypoints" in found[0]:
        points = torch.tensor([each["keypoints"] for each in found]).view(len(found), -1, 3)[..., :2]
        image = draw_keypoints(image, points, colors="white", radius=2)
    return image


def _square(image: Tensor) -> Tensor:
    """An image within a square of `SIDE` pixels."""
    height, width = image.shape[1:]
    scale = SIDE / max(height, width)
    small = resize(image, [max(1, round(height * scale)), max(1, round(width * scale))], antialias=True)
    tile = torch.zeros(3, SIDE, SIDE, dtype=torch.uint8)
    tile[:, : small.shape[1], : small.shape[2]] = small
    return tile
