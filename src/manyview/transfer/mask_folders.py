"""Where pictures and their masks lie: the layouts of folders that people and the published sets have."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.core.text import printable
from manyview.data import Dataset
from manyview.data.factory import SCENES, open_data, some
from manyview.data.normals import requested
from manyview.data.nyu import is_nyu
from manyview.data.paired import Paired
from manyview.data.selection import left_out, subset
from manyview.data.splits import check_folder, find_splits, folders_in, pick_split, split_named
from manyview.transfer.prepared import DataSource

SEMANTIC = "semantic"  # the masks of scenes
VOC = ("JPEGImages", "SegmentationClass", os.path.join("ImageSets", "Segmentation"))
ANNOTATED = ("annot", "_annot", "_labels", "_masks")  # what follows a split's name: SegNet's CamVid has trainannot
HELD_OUT = 0.2  # of the pictures, where there is no test split
MOST_HELD_OUT = 1000


def open_masks(source: DataSource, mask: str | None) -> tuple[Dataset, Dataset | None, str]:
    """Opens training and test pictures with their masks as one of the modalities, and gives its name.

    mask  which modality holds them; None: the one that is named like label maps

    Layouts: `images/` and `masks/`, matched by path, divided into train/ and test/ above or below these (ADE20K) or not
    at all; modalities beside each other, of which one is of label maps; `train/` and `trainannot/` (CamVid as SegNet
    has it); VOC's; a table or NYU-Depth v2's file; `scenes`. There is no test where there is no test or val split, or
    where some of its pictures are training pictures.
    """
    train, test, name = _opened(source, mask)
    overlap = test is not None and not _sources(train).isdisjoint(_sources(test))
    return train, None if overlap else test, name


def _opened(source: DataSource, mask: str | None) -> tuple[Dataset, Dataset | None, str]:
    if source.name == SCENES:
        if mask not in (None, SEMANTIC):
            raise UserError("mask", f"{SCENES} have their masks in {SEMANTIC!r}; leave it out")
        return (*_scenes(source), SEMANTIC)
    path, split = source.name, source.options.get("split") or "train"
    if os.path.isdir(path):
        for layout in (_voc, _beside, _below):
            found = layout(path, split)
            if found is not None and mask in (None, found[2]):
                return found
    train, name = _modalities(source, split, mask)
    try:
        test: Dataset | None = _modalities(source, "test", name)[0]
    except UserError as error:
        if error.setting != "split":
            raise
        test = None
    return train, test, name


def _sources(dataset: Dataset) -> set[object]:
    """The files of each sample, or its id: ids of files are relative to the folder of their split."""
    files: Callable[[int], dict[str, str]] = getattr(dataset, "paths", lambda row: {})
    return {frozenset(files(row).values()) or int(dataset.ids[row]) for row in range(len(dataset))}


def hold_out(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """A fifth of the pictures to score on, chosen by their ids alone, and the others."""
    count = min(MOST_HELD_OUT, int(HELD_OUT * len(dataset)))
    if count < 1:
        raise UserError("data", f"{len(dataset)} pictures are too few to hold out a fifth; give more, or a test split")
    test = some(dataset, count, labelled=False)
    chosen = set(test.ids.tolist())
    return subset(dataset, [row for row, id in enumerate(dataset.ids.tolist()) if id not in chosen]), test


def _scenes(source: DataSource) -> tuple[Dataset, Dataset]:
    given = {key: value for key, value in source.options.items() if key not in ("modalities", "split")}
    usual = source.options.get("modalities") or ("image",)
    asked = requested(open_data(SCENES, modalities=usual), source.views)
    modalities = (*(name for name in dict.fromkeys((*usual, *asked)) if name != SEMANTIC), SEMANTIC)
    splits = source.options.get("split") or "train", "test"
    train, test = (open_data(SCENES, modalities=modalities, split=split, **given) for split in splits)
    return train, test


def _modalities(source: DataSource, split: str, mask: str | None) -> tuple[Dataset, str]:
    """Data whose modalities lie beside each other, in folders, columns or a file."""
    options: dict[str, Any] = {**source.options, "split": split}
    given = options.pop("modalities", None)
    plain = open_data(source.name, **options) if given is None else open_data(source.name, **options, modalities=given)
    there = [name for name in (*plain.modalities, *left_out(plain)) if mask is None or name == mask]
    maps = [name for name in there if mask is not None or is_label_map(name)]
    if mask is None and len(maps) > 1 and is_nyu(source.name):
        maps = ["labels"]
    if len(maps) != 1:
        raise UserError("mask", _which(source.name, plain, maps, mask))
    others = [name for name in (given or plain.modalities) if name != maps[0]]
    asked = [name for name in requested(plain, source.views) if name not in (*others, maps[0])]
    return open_data(source.name, **options, modalities=(*others, *asked, maps[0])), maps[0]


def _which(where: str, data: Dataset, maps: Sequence[str], mask: str | None) -> str:
    there = ", ".join(map(printable, (*data.modalities, *left_out(data))))
    if mask is not None:
        return f"{printable(where)} has no {mask!r}; it has {there}"
    if maps:
        return f"{printable(where)} has several masks, {', '.join(maps)}; give --mask, one of them"
    expected = "a folder images/ and a folder masks/ with the same names, or give --mask, the one that holds masks"
    return f"{printable(where)} has no masks: it has {there}; expected {expected}"


def _voc(root: str, split: str) -> tuple[Dataset, Dataset | None, str] | None:
    """PASCAL VOC: JPEGImages, SegmentationClass, and lists of the pictures of each split."""
    pictures, masks, lists = (os.path.join(root, part) for part in VOC)
    if not all(map(os.path.isdir, (pictures, masks, lists))):
        return None
    whole = Paired({"image": pictures, VOC[1]: masks}, labels=False, complete_only=True)
    train = _listed(whole, os.path.join(lists, f"{split}.txt"))
    other = next((each for each in ("val", "test") if os.path.isfile(os.path.join(lists, f"{each}.txt"))), None)
    return train, None if other is None else _listed(whole, os.path.join(lists, f"{other}.txt")), VOC[1]


def _listed(whole: Paired, file: str) -> Dataset:
    """The pictures that a list names, a line each."""
    check_folder(os.path.dirname(file))
    if not os.path.isfile(file):
        raise UserError("split", f"there is no {printable(file)}; give --data.split, one of those that lie there")
    wanted = set(Path(file).read_text().split())
    rows = [row for row in range(len(whole)) if os.path.splitext(whole.name(row))[0] in wanted]
    if not rows:
        raise UserError("data", f"of the pictures that {printable(file)} names none has a mask")
    return subset(whole, rows)


def _beside(root: str, split: str) -> tuple[Dataset, Dataset | None, str] | None:
    """`train/` and `trainannot/`, and so for the other splits."""
    found = {}
    for folder in folders_in(root):
        name, after = (
            split_named(folder),
            [root_ for root_ in ANNOTATED if os.path.isdir(os.path.join(root, folder + root_))],
        )
        if name is not None and after:
            parts = {"image": os.path.join(root, folder), "masks": os.path.join(root, folder + after[0])}
            found[name] = Paired(parts, labels=False)
    if split not in found:
        return None
    return found[split], found.get("test", found.get("val")), "masks"


def _below(root: str, split: str) -> tuple[Dataset, Dataset | None, str] | None:
    """`images/training/` and `annotations/training/`, and so for the other splits: ADE20K's."""
    folders = folders_in(root)
    maps = [name for name in folders if is_label_map(name)]
    pictures = [name for name in folders if name in ("images", "image", "rgb")]
    if len(maps) != 1 or not pictures:
        return None
    there = [find_splits(os.path.join(root, each)) for each in (pictures[0], maps[0])]
    if split not in there[0] or split not in there[1]:
        return None
    opened: dict[str, Dataset] = {}
    for each in there[0].keys() & there[1].keys():
        parts = {
            name: os.path.join(root, name, pick_split(os.path.join(root, name), each))
            for name in (pictures[0], maps[0])
        }
        opened[each] = Paired(parts, labels=False)
    return opened[split], opened.get("test", opened.get("val")), maps[0]
