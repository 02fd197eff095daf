"""The 20 data sets of ELEVATER (Li et al., NeurIPS 2022) as its toolkit fetches them: lists of files in archives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from manyview.core.errors import UserError
from manyview.data.dataset import id_of
from manyview.data.listed import Listed
from manyview.data.named import Named

FOLDERS: dict[str, str] = {
    "caltech101": "caltech_101_20211007",
    "cifar10": "cifar_10_20211007",
    "cifar100": "cifar100_20200721",
    "country211": "country211_20210924",
    "dtd": "dtd_20211007",
    "eurosat": "eurosat_clip_20210930",
    "fer2013": "fer_2013_20211008",
    "fgvc-aircraft": "fgvc_aircraft_2013b_variants102_20211007",
    "food101": "food_101_20211007",
    "gtsrb": "gtsrb_20210923",
    "hateful-memes": "hateful_memes_20211014",
    "kitti-distance": "kitti_distance_20210923",
    "mnist": "mnist_20211008",
    "flowers102": "oxford_flower_102_20211007",
    "pets": "oxford_iiit_pets_20211007",
    "pcam": "patch_camelyon_20211007",
    "rendered-sst2": "rendered_sst2_20210924",
    "resisc45": "resisc45_clip_20210924",
    "cars": "stanford_cars_20211007",
    "voc2007": "voc2007_20211007",
}
"""Our name of each set -> its folder, as the toolkit's vision_datasets.json has it."""

SEVERAL = ("voc2007",)  # sets whose images have several labels
LISTS = ("{}.txt", "{}_images.txt", "{}_ic.txt", "{}.json", "{}_meta.json")  # of a split
LABEL_NAMES = ("labels.txt", "labelmap.txt")


def elevater_folder(root: Path, name: str) -> Path | None:
    """Where ELEVATER's copy of a set lies, if it is there."""
    homes = [root / "classification" / FOLDERS[name], root / FOLDERS[name]]
    return next((each for each in homes if each.is_dir()), None)


def open_elevater(root: Path, name: str, split: str) -> Named:
    """A split, "train" or "test", of ELEVATER's copy of a set, with ids of its own."""
    home = elevater_folder(root, name)
    if home is None:
        raise UserError(name, f"there is no {FOLDERS[name]}/ in {root}, or in its classification/")
    files = [home / each.format(split) for each in LISTS]
    index = next((each for each in files if each.is_file()), None)
    if index is None:
        raise UserError(name, f"there is no list of its {split} images in {home}, such as {files[0].name}")
    try:
        data = _from_json(home, index) if index.suffix == ".json" else _from_text(home, index)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(name, f"{index} is not as ELEVATER writes it ({error}); fetch it again") from error
    several = name in SEVERAL
    sets = _sets(data[1], len(data[2])) if several else None
    labels = [None if several else each[0] for each in data[1]]
    start = id_of(f"elevater/{name}/{split}") >> 32 << 32
    rows = torch.arange(len(labels))
    listed = Listed(data[0], labels, data[2], sets)
    return Named(listed, f"{name}/{split}", start + rows, labels, data[2], rows, sets)


Manifest = tuple[list[str], list[list[int]], tuple[str, ...]]
"""Files, the labels of each, and the classes."""


def _from_text(home: Path, index: Path) -> Manifest:
    """Lines "train.zip@images/1.jpg 3", with several labels "train.zip@1.jpg 3,5"; names in a file of their own."""
    rows = [line.rsplit(" ", 1) for line in index.read_text().splitlines() if line.strip()]
    labels = [[int(each) for each in row[1].split(",")] for row in rows]
    names = next((home / each for each in LABEL_NAMES if (home / each).is_file()), None)
    count = 1 + max(max(each) for each in labels)
    classes = [str(number) for number in range(count)] if names is None else names.read_text().splitlines()
    return [str(home / row[0]) for row in rows], labels, tuple(each for each in classes if each.strip())


def _from_json(home: Path, index: Path) -> Manifest:
    """COCO's format: images, annotations and categories, which are numbered from 1."""
    found: dict[str, Any] = json.loads(index.read_text())
    classes = sorted(found["categories"], key=lambda each: int(each["id"]))
    number = {each["id"]: place for place, each in enumerate(classes)}
    labels: dict[Any, list[int]] = {each["id"]: [] for each in found["images"]}
    for each in found["annotations"]:
        labels[each["image_id"]].append(number[each["category_id"]])
    archives = [f"{each['zip_file']}@" if "zip_file" in each else "" for each in found["images"]]
    files = [str(home / f"{zip}{each['file_name']}") for zip, each in zip(archives, found["images"], strict=True)]
    return files, [labels[each["id"]] for each in found["images"]], tuple(each["name"] for each in classes)


def _sets(labels: list[list[int]], classes: int) -> torch.Tensor:
    made = torch.zeros(len(labels), classes, dtype=torch.int8)
    for row, each in enumerate(labels):
        made[row, each] = 1
    return made
