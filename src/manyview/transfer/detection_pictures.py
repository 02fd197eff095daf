"""Pictures of what a detector finds, below what is annotated: boxes with class and score, masks, keypoints."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from manyview.core.atomic import atomic_write
from manyview.transfer.objects import Entry, ObjectImages
from manyview.transfer.picture_sheet import Colour, font, sheet
from manyview.transfer.run_lengths import decode_mask

COLUMNS, ROWS = 3, 2  # of images
SIDE = 344  # pixels of the longer side of a picture
LEAST = 0.5  # score of what is drawn
BEST = 3  # found objects that are drawn where none has so high a score
MOST = 30  # objects of an image
VEIL = 0.45  # how much of a mask's colour covers the image
POINT = 3  # pixels: half the size of a keypoint
GOLDEN = 0.381966  # turns of hue from one class to the next, so that neighbours differ
BLACK, WHITE = (0, 0, 0), (255, 255, 255)
HEADINGS = "annotated", f"found, with a score of {LEAST} or more, or else the best {BEST}"


def save_pictures(data: ObjectImages, predictions: Sequence[Entry], path: Path) -> None:
    """Writes one PNG of the first images with objects: what is annotated in them, and below it what was found."""
    chosen = (data.rows_with_objects() or list(range(len(data))))[: COLUMNS * ROWS]
    rows = []
    for start in range(0, len(chosen), COLUMNS):
        some = chosen[start : start + COLUMNS]
        pictures = [_small(data.read(row)) for row in some]
        right = [[each for each in data.objects(row) if not each["iscrowd"]] for row in some]
        found = [shown(predictions, data.images[row]["id"]) for row in some]
        for heading, objects in zip(HEADINGS, (right, found), strict=True):
            tiles = [drawn(data, *each) for each in zip(some, pictures, objects, strict=True)]
            rows.append((heading, tiles))
    with atomic_write(path) as draft:
        sheet(rows).save(draft, format="PNG")


def shown(predictions: Sequence[Entry], image: int) -> list[Entry]:
    """What is drawn of the objects that were found in an image, the best first."""
    found = sorted((each for each in predictions if each["image_id"] == image), key=lambda each: -each["score"])
    return [each for each in found if each["score"] >= LEAST] or found[:BEST]


def drawn(data: ObjectImages, row: int, picture: Image.Image, objects: Sequence[Entry]) -> Image.Image:
    """A picture of an image, of any size, with objects drawn over it, by the names of their classes."""
    size = data.images[row]["height"], data.images[row]["width"]
    colours = {each["id"]: _colour(place) for place, each in enumerate(data.categories)}
    each_with_colour = [(each, colours[each["category_id"]]) for each in objects[:MOST]]
    made = picture.copy()
    if data.kind == "masks":
        for each, colour in each_with_colour:
            _veil(made, each["segmentation"], size, colour)
    draw, scale = ImageDraw.Draw(made), picture.width / size[1]
    skeletons = {each["id"]: each.get("skeleton", []) for each in data.categories}
    for each, colour in each_with_colour:
        left, top, right, bottom = _corners(each, scale)
        draw.rectangle((left, top, right, bottom), outline=colour, width=2)
        if data.kind == "keypoints":
            _keypoints(draw, each["keypoints"], skeletons[each["category_id"]], scale, colour)
    taken: list[tuple[float, float, float, float]] = []
    for each, colour in each_with_colour:
        text = _words(data, each)
        if text:
            _name(draw, text, _corners(each, scale), colour, made.size, taken)
    return made


def _words(data: ObjectImages, entry: Entry) -> str:
    """The name of an object's class, where there are several, and its score, if it has one."""
    names = {each["id"]: each["name"] for each in data.categories} if len(data.categories) > 1 else {}
    score = f"{entry['score']:.2f}" if "score" in entry else ""
    return " ".join(filter(None, [names.get(entry["category_id"], ""), score]))


def _small(image: Tensor) -> Image.Image:
    """An image (3, H, W) whose longer side has `SIDE` pixels."""
    whole = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    scale = SIDE / max(whole.size)
    return whole.resize((max(1, round(whole.width * scale)), max(1, round(whole.height * scale))))


def _corners(entry: Entry, scale: float) -> tuple[float, float, float, float]:
    left, top, across, down = (scale * float(each) for each in entry["bbox"])
    return left, top, left + max(across, 0.0), top + max(down, 0.0)


def _veil(picture: Image.Image, segmentation: object, size: tuple[int, int], colour: Colour) -> None:
    """Covers a mask with its colour, through which the picture can be seen."""
    mask = Image.fromarray(decode_mask(segmentation, *size).numpy().astype(np.uint8) * round(255 * VEIL))
    picture.paste(colour, (0, 0), mask.resize(picture.size, Image.Resampling.NEAREST))


def _keypoints(
    draw: ImageDraw.ImageDraw, points: Sequence[float], skeleton: Sequence[Sequence[int]], scale: float, colour: Colour
) -> None:
    """Draws the keypoints that can be seen, and the lines between them where a skeleton says so."""
    places = [(scale * x, scale * y) for x, y in zip(points[::3], points[1::3], strict=True)]
    seen = [bool(each) for each in points[2::3]]
    for first, second in skeleton:
        if seen[first - 1] and seen[second - 1]:
            draw.line((places[first - 1], places[second - 1]), colour, 2)
    for (x, y), there in zip(places, seen, strict=True):
        if there:
            draw.ellipse((x - POINT, y - POINT, x + POINT, y + POINT), WHITE, BLACK)


def _name(
    draw: ImageDraw.ImageDraw,
    text: str,
    corners: tuple[float, float, float, float],
    colour: Colour,
    size: tuple[int, int],
    taken: list[tuple[float, float, float, float]],
) -> None:
    """Writes a name at its box, above or within it and inside the picture, unless another name stands there."""
    letters = font()
    _, _, across, down = letters.getbbox(text)
    across, down = across + 4, down + 2
    x = min(max(corners[0], 0), max(0, size[0] - across))
    for y in (corners[1] - down, corners[1], corners[3], corners[3] - down):
        here = x, y, x + across, y + down
        if 0 <= y <= size[1] - down and not any(_overlap(here, each) for each in taken):
            taken.append(here)
            draw.rectangle(here, colour)
            draw.text((x + 2, y), text, BLACK, letters)
            return


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _colour(place: int) -> Colour:
    """A bright colour of a class, on which black letters can be read."""
    red, green, blue = colorsys.hsv_to_rgb(place * GOLDEN % 1, 0.65, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)
