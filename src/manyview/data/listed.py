"""Sets that torchvision does not have, as they are published: lists of files with a label each, or with several.

An opener takes the root, the set's name, None for torchvision's class and the split's arguments; None if nothing is
there.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
KITTI_CLASSES = ("vehicle within 8 m", "vehicle within 20 m", "vehicle farther away", "no vehicle")
KITTI_METRES = (8.0, 20.0)
VEHICLES = ("Car", "Van", "Truck")
DEPTH = 13  # the column of a KITTI label with the distance along the camera's axis in metres
PICTURES = (".jpg", ".jpeg", ".png", ".tif")
_ZIPS: dict[tuple[int, str], ZipFile] = {}  # by process: a file that is open in a parent is not a child's to read


@dataclass(frozen=True, eq=False)
class Listed:
    """Image files in a fixed order, as torchvision's data sets hold them.

    files       paths, or "archive.zip@path" for files in an archive
    targets     the number of each file's class; None where there is none
    label_sets  (n, classes) where files have several labels: 1 is there, 0 is not, -1 is not to be counted
    """

    files: list[str]
    targets: list[int | None]
    classes: tuple[str, ...]
    label_sets: Tensor | None = None

    def __getitem__(self, row: int) -> tuple[Image.Image, int | None]:
        archive, at, member = self.files[row].partition(".zip@")
        source = BytesIO(_archive(f"{archive}.zip").read(member)) if at else self.files[row]
        return Image.open(source), self.targets[row]


def _archive(path: str) -> ZipFile:
    key = os.getpid(), path
    if key not in _ZIPS:
        try:
            _ZIPS[key] = ZipFile(path)
        except BadZipFile as error:
            raise ValueError(f"{path} is no zip archive: {error}") from error
    return _ZIPS[key]


def voc2007(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Listed | None:
    """PASCAL VOC 2007 classification: VOCdevkit/VOC2007 with JPEGImages and ImageSets/Main/CLASS_SPLIT.txt.

    Of an image 1 says that it shows the class, -1 that it does not, 0 that all of the class that it shows is difficult:
    such an image counts neither way for this class, as in the devkit's own evaluation.
    """
    home = next((each for each in (root / "VOCdevkit/VOC2007", root / "VOC2007") if each.is_dir()), None)
    if home is None:
        return None
    meaning = {"1": 1, "-1": 0, "0": -1}
    columns: list[dict[str, int]] = []
    for each in VOC_CLASSES:
        lines = _lines(home / "ImageSets/Main" / f"{each}_{arguments['split']}.txt")
        columns.append({line.split()[0]: meaning[line.split()[1]] for line in lines})
    stems = sorted(columns[0])
    sets = torch.tensor([[column.get(stem, 0) for column in columns] for stem in stems], dtype=torch.int8)
    return Listed([str(home / "JPEGImages" / f"{stem}.jpg") for stem in stems], [None] * len(stems), VOC_CLASSES, sets)


def hateful_memes(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Listed | None:
    """Hateful Memes (Kiela et al., NeurIPS 2020): img/ with train.jsonl, and dev.jsonl or dev_seen.jsonl.

    Its test labels were not published at first; ELEVATER tests on 500 images, as many as dev has.
    """
    home = next((each for each in (root / "hateful_memes", root / "hateful-memes") if each.is_dir()), None)
    if home is None:
        return None
    lists = [home / f"{arguments['split']}{ending}.jsonl" for ending in ("", "_seen")]
    rows = [json.loads(line) for line in _lines(next((each for each in lists if each.exists()), lists[0]))]
    labels = [int(row["label"]) if "label" in row else None for row in rows]
    return Listed([str(home / row["img"]) for row in rows], labels, ("not hateful", "hateful"))


def kitti_distance(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Listed | None:
    """KITTI's object detection set with VTAB's question (Zhai et al., 2019): how far is the closest vehicle?

    training/image_2 and training/label_2. The distance is that along the camera's axis of the nearest car, van or
    truck: up to 8 m, up to 20 m, more, or none. VTAB's split goes by drives, by files of KITTI's devkit; here there is
    none, and pictures that are held out may show what training pictures show a moment later.
    """
    homes = [root / each / "training" for each in ("kitti", "Kitti/raw", ".")]
    home = next((each for each in homes if (each / "label_2").is_dir()), None)
    if home is None:
        return None
    files = sorted((home / "label_2").glob("*.txt"))
    pictures = [str(home / "image_2" / f"{each.stem}.png") for each in files]
    return Listed(pictures, [distance_class(_lines(each)) for each in files], KITTI_CLASSES)


def distance_class(lines: list[str]) -> int:
    """The number in `KITTI_CLASSES` of a KITTI label file."""
    rows = [line.split() for line in lines]
    metres = [float(row[DEPTH]) for row in rows if row and row[0] in VEHICLES]
    return sum(min(metres) > limit for limit in KITTI_METRES) if metres else len(KITTI_CLASSES) - 1


def resisc45(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Listed | None:
    """NWPU-RESISC45 (Cheng et al., 2017): a folder for each of 45 scenes, 700 pictures each. There is no split."""
    home = next((each for each in (root / "NWPU-RESISC45", root / "resisc45") if each.is_dir()), None)
    if home is None:
        return None
    classes = sorted(each.name for each in home.iterdir() if each.is_dir())
    rows = [(number, file) for number, each in enumerate(classes) for file in sorted((home / each).iterdir())]
    rows = [(number, file) for number, file in rows if file.suffix.lower() in PICTURES]
    return Listed([str(file) for _, file in rows], [number for number, _ in rows], tuple(classes))


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror}); the set is not whole without it") from error
