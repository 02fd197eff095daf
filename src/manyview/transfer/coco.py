"""Reads COCO's JSON, the published files and anybody's own: images, boxes, masks and keypoints by split."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.json_file import parse_json
from manyview.core.text import printable, reason
from manyview.data.dataset import Unreadable
from manyview.data.image import decode, read_header
from manyview.transfer.objects import Entry, Kind, ObjectImages, checked, hold_out

SPLITS = {"train": "train", "valid": "val", "val": "val", "test": "test"}  # part of a file's name: the split
PUBLISHED = {"boxes": "instances_", "masks": "instances_", "keypoints": "person_keypoints_"}
OTHER = ("captions_", "panoptic_", "stuff_", "image_info_")  # of COCO's own files, those without objects
SHOWN = 5  # files that are named
ROBOFLOW = "_annotations.coco.json"  # lies beside the images, in a folder for each split


def open_coco(path: Path, kind: Kind) -> tuple[ObjectImages, ObjectImages]:
    """Training images and those to score on, of a folder or a JSON file.

    In a folder, a file for each split: `annotations/instances_train2017.json` and so on, `train.json` and `val.json`,
    or Roboflow's. A test split wins over a validation split; without either, images are held out.
    """
    files = {"train": path} if path.is_file() else annotation_files(path, kind)
    if "train" not in files:
        raise UserError("data", _no_training_file(path, kind))
    train = read_split(files["train"], kind)
    other = next((files[split] for split in ("test", "val") if split in files), None)
    if other is None:
        return hold_out(train)
    test = read_split(other, kind)
    _check_categories(train, test)
    return train, replace(test, categories=train.categories)


def is_coco(path: Path) -> bool:
    """Whether there are JSON files where those of COCO would lie."""
    return path.suffix.lower() == ".json" if path.is_file() else any(_json_files(path))


def annotation_files(folder: Path, kind: Kind) -> dict[str, Path]:
    """The file of each split in a folder; of COCO's own files, those of the kind."""
    found: dict[str, Path] = {}
    for file in _json_files(folder):
        split = _split_of(file)
        if split is None or _is_of_another_kind(file, kind):
            continue
        if split in found:
            both = f"{printable(str(found[split]))} and {printable(str(file))}"
            raise UserError("data", f"{both} are both a {split} split; give a folder with one, or the file itself")
        found[split] = file
    return found


def read_split(file: Path, kind: Kind) -> ObjectImages:
    """Reads one JSON file; images whose file is not there, or that are of another size, are left out and counted."""
    content = _load(file)
    categories = _categories(file, content["categories"], kind)
    roots, counts = image_folders(file), Counter[str]()
    images, paths = [], []
    for each in content["images"]:
        image, why = _image(each, roots)
        if image is None:
            counts[why] += 1
            continue
        paths.append(image.pop("path"))
        images.append(image)
    name = printable(file.stem if file.name != ROBOFLOW else file.parent.name)
    told = [f"{name}: images left out, {why}: {number:,}" for why, number in counts.items()]
    if not images:
        raise UserError(
            "data", f"{printable(str(file))}: none of its images can be used ({'; '.join(counts) or 'it lists none'})"
        )
    if len({each["id"] for each in images}) < len(images):
        raise UserError("data", f"{printable(str(file))}: two of its images have the same id")
    made = checked(name, images, content["annotations"], categories, partial(read_image, paths), kind, told)
    if not made.annotations:
        raise UserError("data", f"{printable(str(file))} has no object that can be used; {'; '.join(made.told)}")
    return made


def image_folders(file: Path) -> list[Path]:
    """Where the images of an annotation file may lie, the likeliest first."""
    split = re.sub("^(instances|person_keypoints)_", "", file.stem)
    above = [file.parent, file.parent.parent]
    named = [folder / part / split for folder in above for part in ("", "images")]
    return [folder for folder in (*named, *(each / "images" for each in above), *above) if folder.is_dir()]


def find_image(name: str, roots: Sequence[Path]) -> Path | None:
    """The file of an image in the first folder that has it."""
    return next((root / name for root in roots if (root / name).is_file()), None)


def image_size(path: Path) -> tuple[int, int] | None:
    """Height and width, from the header of a file; None of one that is no image."""
    try:
        header = read_header(path)
    except Unreadable:
        return None
    return header.height, header.width


def read_image(paths: Sequence[Path], row: int) -> Tensor:
    try:
        return decode(paths[row])
    except Unreadable as error:
        raise UserError("data", f"{printable(str(paths[row]))} cannot be read ({error}); mend or remove it") from None


def _image(entry: Any, roots: Sequence[Path]) -> tuple[Entry | None, str]:
    """The id, size and path of an image, or why it cannot be used."""
    if not isinstance(entry, dict) or not _is_id(entry.get("id")) or not isinstance(entry.get("file_name"), str):
        return None, "without a whole number as id or without a file name"
    try:
        path = find_image(entry["file_name"], roots)
    except (OSError, ValueError):  # a name that no file can have
        path = None
    if path is None:
        return None, "whose file is not there"
    size = image_size(path)
    if size is None:
        return None, "whose file is no image"
    given = entry.get("height", size[0]), entry.get("width", size[1])
    if given != size:
        return None, "whose file has another size than the annotations say"
    return {"id": entry["id"], "file_name": entry["file_name"], "height": size[0], "width": size[1], "path": path}, ""


def _load(file: Path) -> dict[str, list[Any]]:
    shown = printable(str(file))
    try:
        written = file.read_bytes()
        content = parse_json(written.decode(json.detect_encoding(written)))
    except (OSError, ValueError) as error:
        raise UserError("data", f"{shown} cannot be read as JSON ({reason(error)})") from None
    for name in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(name), list):
            raise UserError("data", f"{shown} is no COCO JSON: it has no list of {name}")
    return content  # type: ignore[no-any-return]


def _categories(file: Path, entries: Sequence[Any], kind: Kind) -> list[Entry]:
    shown = printable(str(file))
    found = []
    for each in entries:
        if not isinstance(each, dict) or not _is_id(each.get("id")) or not isinstance(each.get("name"), str):
            raise UserError("data", f"{shown}: a category needs a whole number as id, and a name; got {each!r:.80}")
        points = each.get("keypoints") or []
        if not isinstance(points, list) or not all(isinstance(point, str) for point in points):
            raise UserError("data", f"{shown}: the keypoints of {each['name']!r} are no list of names")
        lines = _skeleton(each.get("skeleton"), len(points))
        found.append({"id": each["id"], "name": printable(each["name"]), "keypoints": points, "skeleton": lines})
    if not found or len({each["id"] for each in found}) < len(found):
        raise UserError("data", f"{shown}: it needs categories, each with an id of its own")
    found.sort(key=lambda each: int(each["id"]))
    if kind != "keypoints":
        return [{"id": each["id"], "name": each["name"]} for each in found]
    with_points = [each for each in found if each["keypoints"]]
    if len({len(each["keypoints"]) for each in with_points}) != 1:
        raise UserError("data", f"{shown}: a keypoint detector needs categories with equally many keypoints, and some")
    return with_points


def _skeleton(lines: Any, points: int) -> list[list[int]]:
    """Pairs of keypoints, counted from 1, between which pictures have lines; none where something else stands there."""
    pairs = lines if isinstance(lines, list) else []
    whole = all(
        isinstance(pair, list) and len(pair) == 2 and all(type(end) is int and 1 <= end <= points for end in pair)
        for pair in pairs
    )
    return pairs if whole else []


def _is_id(value: object) -> bool:
    """Whether something is a whole number of 64 bits."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _check_categories(train: ObjectImages, test: ObjectImages) -> None:
    known = {each["id"]: each for each in train.categories}
    for each in test.categories:
        same = known.get(each["id"], {})
        if same.get("name") == each["name"] and same.get("keypoints") != each.get("keypoints"):
            there = f"{test.title} has other keypoints of {each['name']!r} than {train.title}"
            raise UserError("data", f"{there}; both splits need the same, in the same order")
        if same.get("name") != each["name"]:
            there = f"{test.title} has a category {each['id']} {each['name']!r} that {train.title} has not"
            raise UserError("data", f"{there}; both splits need the same categories")


def _no_training_file(folder: Path, kind: Kind) -> str:
    """What a folder lacks: any JSON file of a training split, or, of COCO's own files, the one with such objects."""
    shown = printable(str(folder))
    others = [file.name for file in _json_files(folder) if _split_of(file) == "train"]
    if not others:
        return f"{shown} has no JSON file with 'train' in its name; give the file itself"
    named = ", ".join(map(printable, others[:SHOWN]))
    return f"{shown} has no {PUBLISHED[kind]}train*.json, which has {kind}; it has {named}"


def _json_files(folder: Path) -> Iterator[Path]:
    """JSON files in a folder and in its `annotations`, and Roboflow's in its other folders."""
    for place in (folder, folder / "annotations"):
        yield from sorted(place.glob("*.json"))
    yield from sorted(folder.glob(f"*/{ROBOFLOW}"))


def _split_of(file: Path) -> str | None:
    name = (file.parent.name if file.name == ROBOFLOW else file.stem).lower()
    return next((split for part, split in SPLITS.items() if part in name), None)


def _is_of_another_kind(file: Path, kind: Kind) -> bool:
    """Whether a file is one of COCO's own, and not the one with such objects."""
    published = {*PUBLISHED.values(), *OTHER} - {PUBLISHED[kind]}
    return file.name.startswith(tuple(published))
