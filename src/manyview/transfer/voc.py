"""Reads PASCAL VOC's XML: boxes by split, of one year or of several together, as 07+12."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from manyview.core.errors import UserError
from manyview.core.text import printable, reason
from manyview.transfer.coco import image_size, read_image
from manyview.transfer.objects import Entry, Kind, ObjectImages, checked, hold_out

LARGEST = 1 << 22  # bytes of an XML file; VOC's have some thousands
EXTENSIONS = (".jpg", ".jpeg", ".png")
YEAR = re.compile(r"VOC\d{4}")


def is_voc(path: Path) -> bool:
    """Whether a folder is one of VOC's, or holds some."""
    return bool(years(path))


def years(path: Path) -> list[Path]:
    """The folders with `Annotations` and `JPEGImages`: this one, or those of several years in it."""
    within = [path / "VOCdevkit", path]
    there = [each for folder in within if folder.is_dir() for each in sorted(folder.iterdir()) if YEAR.match(each.name)]
    return [each for each in (path, *there) if (each / "Annotations").is_dir() and (each / "JPEGImages").is_dir()]


def open_voc(path: Path, kind: Kind) -> tuple[ObjectImages, ObjectImages]:
    """Training images and those to score on: `trainval` of all years and `test` of those that have one, or else `train`
    and `val`; where no list of images is there, some are held out. Difficult objects count as crowds do: nobody learns
    from them, and to find one or not changes no score."""
    if kind != "boxes":
        raise UserError("task", f"VOC's XML has boxes alone, and no {kind}; use --task detect")
    folders = years(path)
    for first, second in (("trainval", "test"), ("train", "val")):
        train, test = ([each for each in folders if _list(each, split).is_file()] for split in (first, second))
        if train and test:
            names = [[(each, name) for each in some for name in _names(_list(each, split))]
                     for some, split in ((train, first), (test, second))]  # fmt: skip
            learnt, scored = _open(names, (first, second))
            return learnt, scored
    everything = [(each, file.stem) for each in folders for file in sorted((each / "Annotations").glob("*.xml"))]
    if not everything:
        raise UserError("data", f"{printable(str(path))} has no XML file in Annotations")
    return hold_out(_open([everything], ("all",))[0])


def _open(lists: Sequence[Sequence[tuple[Path, str]]], splits: Sequence[str]) -> tuple[ObjectImages, ...]:
    """Splits with the same classes, which are the names of all objects in their order."""
    found = [_parsed(names) for names in lists]
    classes = sorted({each["name"] for _, objects, _, _ in found for each in objects})
    numbers = {name: number for number, name in enumerate(classes, start=1)}
    categories = [{"id": number, "name": printable(name)} for name, number in numbers.items()]
    made = []
    for split, (images, objects, paths, counts) in zip(splits, found, strict=True):
        told = [f"{split}: images left out, {why}: {number:,}" for why, number in counts.items()]
        if not objects:
            raise UserError("data", f"the VOC split {split} has no object that can be used; {'; '.join(told)}")
        annotations = [{**each, "category_id": numbers[each["name"]]} for each in objects]
        made.append(
            replace(
                checked(split, images, annotations, categories, partial(read_image, paths), "boxes", told), voc=True
            )
        )
    return tuple(made)


def _parsed(names: Iterable[tuple[Path, str]]) -> tuple[list[Entry], list[Entry], list[Path], Counter[str]]:
    images: list[Entry] = []
    objects: list[Entry] = []
    paths: list[Path] = []
    counts: Counter[str] = Counter()
    for number, (folder, name) in enumerate(names, start=1):
        file = next((each for end in EXTENSIONS if (each := folder / "JPEGImages" / f"{name}{end}").is_file()), None)
        xml = folder / "Annotations" / f"{name}.xml"
        size = None if file is None else image_size(file)
        if file is None or size is None or not xml.is_file():
            counts["whose file is not there, or is no image" if size is None else "whose XML is not there"] += 1
            continue
        images.append({"id": number, "file_name": file.name, "height": size[0], "width": size[1]})
        paths.append(file)
        objects += [{**each, "image_id": number} for each in objects_of(xml)]
    return images, objects, paths, counts


def objects_of(file: Path) -> list[Entry]:
    """The objects of an XML file: name, box and whether it is difficult. VOC counts pixels from 1, and a box's last
    pixel belongs to it."""
    try:
        if file.stat().st_size > LARGEST:
            raise ValueError(f"it has {file.stat().st_size >> 20} MB")
        root = ElementTree.fromstring(file.read_bytes())
        found = []
        for each in root.iter("object"):
            left, top, right, bottom = (_number(each, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax"))
            box = [left - 1, top - 1, right - left + 1, bottom - top + 1]
            difficult = int((each.findtext("difficult") or "0").strip() == "1")
            found.append({"name": (each.findtext("name") or "").strip(), "bbox": box, "iscrowd": difficult})
        return found
    except (OSError, ValueError, ElementTree.ParseError) as error:
        raise UserError("data", f"{printable(str(file))} cannot be read as VOC's XML ({reason(error)})") from None


def _number(element: ElementTree.Element, path: str) -> float:
    text = element.findtext(path)
    if text is None:
        raise ValueError(f"an object has no {path}")
    return float(text)


def _list(folder: Path, split: str) -> Path:
    return folder / "ImageSets" / "Main" / f"{split}.txt"


def _names(file: Path) -> list[str]:
    return [line.split()[0] for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
