"""Images with the objects in them: boxes, masks and keypoints, of any source in COCO's own form."""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Sample
from manyview.transfer.run_lengths import decode_mask, has_flaw

Kind = Literal["boxes", "masks", "keypoints"]
Entry = dict[str, Any]
SMALLEST = 1e-3  # pixels: the side of a box below which there is no object
HELD_OUT = 0.1  # of the images, where there is no test split
DRAW = 0x0B7EC7  # keeps the draw of held-out images apart from others


@dataclass(frozen=True, eq=False)
class ObjectImages:
    """Images and their objects, as a COCO JSON lists them; made by `checked`.

    images       id, height, width and file_name of each
    annotations  id, image_id, category_id, bbox (left, top, width, height), area, iscrowd; where there are any,
                 segmentation, and keypoints with num_keypoints
    categories   id and name; where there are any, the keypoints' names, and a skeleton, the lines between them. The
                 class of a category is its place, from 1
    title        what a person would call them
    read         decodes the image of a row into (3, H, W) uint8
    kind         what of the objects is wanted
    told         what was left out or changed, a line each
    held_out     whether they were held out of the training images, and are no test split
    voc          whether they are VOC's, which is also scored by a rule of its own
    """

    title: str
    images: list[Entry]
    annotations: list[Entry]
    categories: list[Entry]
    read: Callable[[int], Tensor]
    kind: Kind = "boxes"
    told: tuple[str, ...] = field(default_factory=tuple)
    held_out: bool = False
    voc: bool = False

    def __len__(self) -> int:
        return len(self.images)

    modalities = ("image",)
    labels = None

    @cached_property
    def ids(self) -> Tensor:
        """(n,) int64: each image with what is said of it, so that other annotations make other data."""
        told = [json.dumps(self._of_image[each["id"]], sort_keys=True) for each in self.images]
        sums = torch.tensor([zlib.crc32(each.encode("utf-8", "surrogateescape")) for each in told])
        return key(torch.tensor([each["id"] for each in self.images]), sums) & (2**63 - 1)

    def __getitem__(self, row: int) -> Sample:
        return Sample(int(self.ids[row]), row, {"image": self.read(row)})

    def name(self, row: int) -> str:
        return str(self.images[row]["file_name"])

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(each["name"] for each in self.categories)

    @cached_property
    def keypoints(self) -> tuple[str, ...]:
        """The names of the keypoints of an object."""
        return next((tuple(each["keypoints"]) for each in self.categories if each.get("keypoints")), ())

    @cached_property
    def mirrored(self) -> list[int] | None:
        """The keypoint that each one is in a mirrored image: left and right change places. None where no name says
        which are left and right, so that images must not be mirrored."""
        swapped = [_other_side(name) for name in self.keypoints]
        if swapped == list(self.keypoints) or set(swapped) != set(self.keypoints):
            return None
        return [self.keypoints.index(name) for name in swapped]

    def objects(self, row: int) -> list[Entry]:
        """All that is annotated in the image of a row."""
        return self._of_image[self.images[row]["id"]]

    def target(self, row: int) -> dict[str, Tensor]:
        """What a detector learns of an image: boxes (n, 4) by their edges, labels (n,), and by the kind masks (n, H, W)
        or keypoints (n, K, 3). Crowds, and boxes of which nothing is in the image, are left out."""
        image = self.images[row]
        height, width = image["height"], image["width"]
        kept = [each for each in self.objects(row) if is_trained_on(each, height, width)]
        boxes = [edges(each["bbox"], height, width) for each in kept]
        labels = [self._class_of[each["category_id"]] for each in kept]
        found = {"boxes": torch.tensor(boxes).view(-1, 4), "labels": torch.tensor(labels, dtype=torch.long)}
        if self.kind == "masks":
            masks = [decode_mask(each["segmentation"], height, width) for each in kept]
            found["masks"] = torch.stack(masks) if masks else torch.zeros(0, height, width, dtype=torch.uint8)
        if self.kind == "keypoints":
            points = [each["keypoints"] for each in kept]
            found["keypoints"] = torch.tensor(points, dtype=torch.float32).view(-1, len(self.keypoints), 3)
        return found

    def rows_with_objects(self) -> list[int]:
        """The images that there is something to learn from; with keypoints, those where some can be seen."""
        learnt = {
            each["image_id"]
            for each in self.annotations
            if is_trained_on(each, **self._size_of[each["image_id"]])
            and (self.kind != "keypoints" or each["num_keypoints"])
        }
        return [row for row, image in enumerate(self.images) if image["id"] in learnt]

    def subset(self, rows: Sequence[int]) -> ObjectImages:
        """Some of the images with their objects."""
        images = [self.images[row] for row in rows]
        kept = {image["id"] for image in images}
        annotations = [each for each in self.annotations if each["image_id"] in kept]
        read = self.read
        return replace(self, images=images, annotations=annotations, read=lambda row: read(rows[row]))

    @cached_property
    def _of_image(self) -> Mapping[int, list[Entry]]:
        found: dict[int, list[Entry]] = defaultdict(list)
        for each in self.annotations:
            found[each["image_id"]].append(each)
        return found

    @cached_property
    def _class_of(self) -> dict[int, int]:
        return {each["id"]: number for number, each in enumerate(self.categories, start=1)}

    @cached_property
    def _size_of(self) -> dict[int, dict[str, int]]:
        return {each["id"]: {"height": each["height"], "width": each["width"]} for each in self.images}


def edges(box: Sequence[float], height: int, width: int) -> list[float]:
    """Left, top, right and bottom of a box, cut at the edges of the image."""
    left, top, across, down = (float(each) for each in box)
    return [
        min(max(left, 0.0), width),
        min(max(top, 0.0), height),
        min(max(left + across, 0.0), width),
        min(max(top + down, 0.0), height),
    ]


def is_trained_on(annotation: Entry, height: int, width: int) -> bool:
    """Whether a detector learns from an object: no crowd, and some of it is in the image."""
    left, top, right, bottom = edges(annotation["bbox"], height, width)
    return not annotation["iscrowd"] and right - left >= SMALLEST and bottom - top >= SMALLEST


def checked(
    name: str,
    images: list[Entry],
    annotations: Sequence[Any],
    categories: list[Entry],
    read: Callable[[int], Tensor],
    kind: Kind,
    told: Sequence[str] = (),
) -> ObjectImages:
    """Keeps the annotations that make sense, and counts those that do not and what is special about others.

    An evaluator meets the boxes as they were given; only a detector's targets are cut at the edge of the image.
    """
    sizes = {each["id"]: (each["height"], each["width"]) for each in images}
    points = {each["id"]: len(each.get("keypoints") or ()) for each in categories}
    counts: Counter[str] = Counter()
    kept: list[Entry] = []
    for each in annotations:
        why = flaw(each, sizes, points, kind)
        if why is None:
            kept.append(_completed(each, len(kept) + 1))
            counts.update(_remarks(kept[-1], *sizes[each["image_id"]]))
        else:
            counts[f"objects left out, {why}"] += 1
    empty = len(sizes.keys() - {each["image_id"] for each in kept})
    counts.update({"images without objects": empty} if empty else {})
    lines = [f"{name}: {what}: {number:,}" for what, number in counts.items()]
    return ObjectImages(name, images, kept, categories, read, kind, (*told, *lines))


def flaw(annotation: Any, sizes: Mapping[int, tuple[int, int]], points: Mapping[int, int], kind: Kind) -> str | None:
    """Why an annotation cannot be used; None of one that can."""
    if not isinstance(annotation, dict):
        return "no table of an object"
    image, category, box = (annotation.get(name) for name in ("image_id", "category_id", "bbox"))
    if not isinstance(image, int) or image not in sizes:
        return "of images that are not there"
    if not isinstance(category, int) or category not in points:
        return "of unknown category ids"
    if not _numbers(box, 4) or box[2] < 0 or box[3] < 0:  # type: ignore[index]
        return "without a box of four numbers, left, top, width and height"
    if kind == "masks" and has_flaw(annotation.get("segmentation"), *sizes[image]):
        return "without a mask that fits the image"
    if kind == "keypoints" and (
        not points[category] or not _numbers(annotation.get("keypoints"), 3 * points[category])
    ):
        return "without the keypoints of their category"
    return None


def hold_out(data: ObjectImages) -> tuple[ObjectImages, ObjectImages]:
    """Divides images into training images and a tenth to score on, by their ids alone."""
    count = round(HELD_OUT * len(data))
    if not count:
        raise UserError("data", f"{data.title} has {len(data)} images, too few to hold some out; give a test split")
    ids = torch.tensor([each["id"] for each in data.images])
    drawn = order(key(DRAW, ids)).tolist()
    line = f"{data.title}: it has no test split, so {count:,} images are held out"
    train, test = data.subset(sorted(drawn[count:])), data.subset(sorted(drawn[:count]))
    return replace(train, told=(*data.told, line)), replace(test, told=(), held_out=True)


def _numbers(value: object, count: int) -> bool:
    if not isinstance(value, list) or len(value) != count:
        return False
    return all(type(each) in (int, float) and math.isfinite(each) for each in value)


def _completed(annotation: Entry, number: int) -> Entry:
    """An annotation with all that an evaluator asks for, and an id of its own: 0 means no match to evaluators."""
    area: Any = annotation.get("area")
    usable = type(area) in (int, float) and math.isfinite(area) and area >= 0
    made = {
        **annotation,
        "id": number,
        "area": area if usable else annotation["bbox"][2] * annotation["bbox"][3],
        "iscrowd": int(annotation.get("iscrowd") in (1, True)),
    }
    if isinstance(annotation.get("keypoints"), list):
        made["num_keypoints"] = sum(each > 0 for each in annotation["keypoints"][2::3])
    return made


def _remarks(annotation: Entry, height: int, width: int) -> list[str]:
    left, top, across, down = annotation["bbox"]
    if annotation["iscrowd"]:
        return ["crowds, which are not trained on"]
    if not is_trained_on(annotation, height, width):
        return ["boxes without area in their image, which are not trained on"]
    outside = left < -1 or top < -1 or left + across > width + 1 or top + down > height + 1
    return ["boxes that go beyond their image, cut at its edge in training"] if outside else []


def _other_side(name: str) -> str:
    for one, other in (("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT")):
        if one in name:
            return name.replace(one, other)
        if other in name:
            return name.replace(other, one)
    return name
