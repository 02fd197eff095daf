"""Makes labelled folders DIR/{train,test}/CLASS/* of data that took no part, or without its labels, in any default.

    python benchmarks/photo_sets.py fashion-mnist FROM DIR   # the four idx files; Debian: dataset-fashion-mnist
    python benchmarks/photo_sets.py coco-objects FROM DIR    # COCO: annotations/instances_*.json, train2017, val2017
    python benchmarks/photo_sets.py flickr8k-words FROM DIR  # images/ and captions.tsv: image, split, caption
    python benchmarks/photo_sets.py emoji FROM DIR           # npm: emoji-datasource-apple and others, side by side

fashion-mnist: the first 20,000 training and 5,000 test pictures, padded from 28 to 32 px. coco-objects: squares about
objects, a quarter longer than their boxes, by kind; every third photo is for the test. flickr8k-words: photos of which
at least three captions have a word of one class, and fewer of every other; every third is for the test. emoji: the
pictures of all vendors by category, without skin tones, on white, at 32 px; every third emoji is for the test, as all
vendors draw it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

IDX_HEADER = {"images": 16, "labels": 8}  # bytes
FASHION = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
INDOOR = ("kitchen", "appliance", "furniture", "electronic", "indoor")
KINDS = {"person": "person", "vehicle": "vehicle", "animal": "animal", **dict.fromkeys(INDOOR, "indoor")}
LEAST = (24, 48)  # pixels of a box, its shorter and its longer side
WORDS = {
    "dog": "dog dogs puppy",
    "bike": "bike bicycle motorcycle biker cyclist motorbike dirtbike",
    "snow": "snow snowy ski skis skier skiing snowboarder snowboard",
    "water": "water pool ocean beach surfer surfing surfboard wave swimming swims lake river",
    "ball": "ball football soccer basketball baseball tennis player",
    "rock": "rock rocks climbing climber climbs cliff mountain",
}
CAPTIONS = 3  # of a photo's five that must agree
TEST = 3  # every third is for the test
SIDE = 256  # pixels of the shorter side of a photo that is kept
ICON = 32  # pixels of an emoji's side

Found = Iterator[tuple[str, str, str, Image.Image]]
"""split, class, name, picture"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("source", type=Path, metavar="FROM")
    parser.add_argument("folder", type=Path, metavar="DIR")
    given = parser.parse_args()
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for split, label, name, picture in SETS[given.set](given.source):
        path = given.folder / split / label / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
        counts[split, label] += 1
    print("\n".join(f"{split} {label}: {count}" for (split, label), count in sorted(counts.items())))


def fashion_mnist(source: Path) -> Found:
    for split, prefix, count in (("train", "train", 20_000), ("test", "t10k", 5_000)):
        images = _idx(source, prefix, "images").reshape(-1, 28, 28)[:count]
        labels = _idx(source, prefix, "labels")[:count]
        for row, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield split, FASHION[label], f"{row:05}", Image.fromarray(np.pad(image, 2)).convert("RGB")


def _idx(source: Path, prefix: str, kind: str) -> np.ndarray:
    (path,) = source.glob(f"{prefix}-{kind}-idx*.gz")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=IDX_HEADER[kind])


def coco_objects(source: Path) -> Found:
    photos = 0
    for split in ("train2017", "val2017"):
        told = json.loads((source / "annotations" / f"instances_{split}.json").read_text())
        kinds = {each["id"]: KINDS.get(each["supercategory"]) for each in told["categories"]}
        boxes = defaultdict(list)
        for each in told["annotations"]:
            if kinds[each["category_id"]] and not each["iscrowd"] and _large(*each["bbox"][2:]):
                boxes[each["image_id"]].append(each)
        for each in told["images"]:
            photos += 1
            picture = Image.open(source / split / each["file_name"]).convert("RGB")
            for box in boxes[each["id"]]:
                kind = kinds[box["category_id"]]
                assert kind is not None
                yield "train" if photos % TEST else "test", kind, str(box["id"]), _around(picture, *box["bbox"])


def _large(width: float, height: float) -> bool:
    return min(width, height) >= LEAST[0] and max(width, height) >= LEAST[1]


def _around(picture: Image.Image, x: float, y: float, width: float, height: float) -> Image.Image:
    """A square about the box, as far as the photo goes."""
    half = 0.625 * max(width, height)
    left, top = x + width / 2 - half, y + height / 2 - half
    right, bottom = min(left + 2 * half, picture.width), min(top + 2 * half, picture.height)
    return _shrunk(picture.crop((int(max(left, 0)), int(max(top, 0)), int(right), int(bottom))))


def flickr8k_words(source: Path) -> Found:
    captions: dict[str, list[set[str]]] = defaultdict(list)
    with (source / "captions.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            captions[row["image"]].append(set(row["caption"].lower().split()))
    count = 0
    for name, told in sorted(captions.items()):
        labels = [
            each for each, words in WORDS.items() if sum(bool(one & set(words.split())) for one in told) >= CAPTIONS
        ]
        if len(labels) == 1:
            count += 1
            picture = Image.open(source / "images" / name).convert("RGB")
            yield "train" if count % TEST else "test", labels[0], Path(name).stem, _shrunk(picture)


def emoji(source: Path) -> Found:
    folders = sorted(source.iterdir())
    for folder in folders:
        for number, each in enumerate(json.loads((folder / "emoji.json").read_text())):
            path = folder / "img" / folder.name / "64" / each["image"]
            if path.exists():
                split, label = "train" if number % TEST else "test", each["category"].replace(" & ", "-and-").lower()
                yield split, label, f"{folder.name}-{path.stem}", _on_white(Image.open(path)).resize((ICON, ICON))


def _on_white(picture: Image.Image) -> Image.Image:
    drawn = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", drawn.size, "white"), drawn).convert("RGB")


def _shrunk(picture: Image.Image) -> Image.Image:
    scale = SIDE / min(picture.size)
    return picture if scale >= 1 else picture.resize((round(picture.width * scale), round(picture.height * scale)))


SETS = {
    "fashion-mnist": fashion_mnist,
    "coco-objects": coco_objects,
    "flickr8k-words": flickr8k_words,
    "emoji": emoji,
}


if __name__ == "__main__":
    main()
