"""Opens a data set from what a person would type, a name or a path; divides it into images to train and to score on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from manyview.core.errors import UserError, hint
from manyview.core.rng import key, order
from manyview.core.text import printable
from manyview.data.dataset import Dataset
from manyview.data.folder import Folder
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.joined import open_paired_splits
from manyview.data.named import NAMED, open_named
from manyview.data.normals import NORMALS, WithNormals, open_with_normals, requested
from manyview.data.nyu import NyuDepth, is_nyu
from manyview.data.paired import Paired, open_if_paired
from manyview.data.selection import imbalanced, subset
from manyview.data.splits import Labels, check_folder
from manyview.data.statistics import NoData
from manyview.data.table import Table, is_table

SCENES = "scenes"
HELD_OUT_SHARE, MAX_HELD_OUT = 0.1, 1000  # of the images, and how many at most, where there is no test split
HOLDOUT = 0x5C0DE  # keeps this draw apart from others with the same seed


def open_data(
    data: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    split: str | None = "train",
    labels: Labels = "auto",
    download: bool = False,
    count: int = 20_000,
    size: int = 32,
    seed: int = 0,
    modalities: tuple[str, ...] | None = None,
    camera: tuple[float, float, float, float] | None = None,
    nodata: NoData = None,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> Dataset:
    """Opens a named set of `NAMED` (cifar10, stl10, ...), `scenes`, a table of paths, NYU-Depth v2, or else a folder.

    A CSV or Parquet file opens as `Table`, a .mat file as `NyuDepth`, a folder that holds one folder per modality, one
    of them called rgb, image or images, as `Paired`, any other as `Folder`. Names win over paths: write ./cifar10 for a
    folder of that name. Without a split it is all of a folder; where its splits are `Paired`, these are `Joined`.

    `root` and `download` are for named sets, `count`, `size` and `seed` for scenes; `modalities` are those of `Scenes`,
    `Paired`, `Table` and `NyuDepth`, the reference first; `normals` that the data does not have are made of its depth:
    `camera` is fx, fy, cx, cy, and `nodata` the value where there is none (`normals_of`).
    Pictures in folders with more than `max_pixels` are unreadable.
    """
    text = os.fspath(data)
    if (text == SCENES or text in NAMED) and isinstance(labels, str) and labels != "auto":
        raise UserError("labels", f"{labels!r} is for files of your own: {text} has labels already; leave it out")
    if text == SCENES:
        from manyview.data.scenes.dataset import Scenes

        return Scenes(count, size=size, seed=seed, split=split or "train", modalities=modalities or ("image",))
    if text in NAMED:
        if modalities not in (None, ("image",)):
            raise UserError("modalities", f"{text} has pictures alone; leave it out, got {', '.join(modalities)}")
        return open_named(text, root=root, split=split or "train", download=download)
    if not os.path.exists(text):
        raise UserError("data", _unknown(text))
    opened = partial(_open_path, text, split=split, labels=labels, max_pixels=max_pixels)
    if modalities is not None and NORMALS in modalities:
        return open_with_normals(opened, modalities, camera, nodata)
    return opened(modalities)


def _open_path(
    path: str, modalities: tuple[str, ...] | None, *, split: str | None, labels: Labels, max_pixels: int
) -> Dataset:
    if is_nyu(path):
        return NyuDepth(path, modalities=modalities, split=split, labels=labels)
    if is_table(path):
        return Table(path, modalities=modalities, split=split, labels=labels, max_pixels=max_pixels)
    joined = open_paired_splits(path, modalities, labels, max_pixels) if split is None and os.path.isdir(path) else None
    if joined is not None:
        return joined
    if modalities is not None:
        return Paired(path, modalities=modalities, split=split, labels=labels, max_pixels=max_pixels)
    paired = open_if_paired(path, split, labels, max_pixels)
    return Folder(path, split=split, labels=labels, max_pixels=max_pixels) if paired is None else paired


def _unknown(text: str) -> str:
    if os.path.dirname(text):  # a path, not a name
        check_folder(text)
    near = hint(text.lower(), [SCENES, *NAMED], cutoff=0.6)
    return f"{printable(text)!r} is neither a folder here nor the name of a data set; {near}"


@dataclass(frozen=True, eq=False)
class Divided:
    """Training images, and images to score on.

    test         labelled, or without labels where these are not needed; None where there are none
    held_out     whether those were held out of the training images, and are no test split
    test_unused  why the test split is not used, where there is one
    balanced     the training images before an imbalance left some of them out, where one did
    """

    train: Dataset
    test: Dataset | None
    held_out: bool = False
    test_unused: str | None = None
    balanced: Dataset | None = None


def divided(data: Dataset | str, *, imbalance: Any = None, unlabelled: bool = False, **options: Any) -> Divided:
    """Divides data into training images and its test split; without one, a tenth of the labelled images is held out.

    So it is where the test split is of no use, which `test_unused` then says. At most `MAX_HELD_OUT` are held out.
    `options` are those of `open_data`. Which images are held out depends on their ids alone.

    imbalance   the rule of `imbalanced` that leaves training images out, once those to score on have been chosen
    unlabelled  where there are no labels, unlabelled images are scored on: retrieval across views needs none
    """
    train = open_data(data, **options) if isinstance(data, str) else data
    found = _divided(train, data, options, unlabelled=unlabelled)
    if imbalance is None:
        return found
    return replace(found, train=imbalanced(found.train, imbalance), balanced=found.train)


def _divided(train: Dataset, data: Dataset | str, options: dict[str, Any], *, unlabelled: bool) -> Divided:
    if not has_classes(train) and not unlabelled:
        return Divided(train, None)
    if not isinstance(data, str):
        return _hold_out(train, None)
    reasons = []
    for split in ("test", "val"):  # a test split may be published without its labels
        test, unused = _split(data, split, options, train)
        if test is not None:
            return Divided(train, test)
        reasons.append(unused)
    return _hold_out(train, next(filter(None, reasons), None))


def divided_for(views: Sequence[str], data: Dataset | str, **options: Any) -> tuple[Divided, bool]:
    """`divided`, also with what views name and the data has on request alone or makes of depth; whether that is so."""
    found = divided(data, **options)
    asked = requested(found.train, views)
    if asked and isinstance(data, str):
        found = divided(data, **{**options, "modalities": (*found.train.modalities, *asked)})
    elif NORMALS in asked and not isinstance(data, str):
        found = divided(WithNormals(data, options.get("camera"), options.get("nodata")), **options)
    return found, bool(asked)


def some(dataset: Dataset, count: int, *, labelled: bool = True) -> Dataset:
    """Chooses at most `count` samples by their ids alone: labelled ones, or any."""
    rows = _labelled_rows(dataset) if labelled else torch.arange(len(dataset))
    chosen = rows[order(key(HOLDOUT, dataset.ids[rows]))[:count]]
    return dataset if len(chosen) == len(dataset) else subset(dataset, chosen.sort().values)


def _split(data: str, split: str, options: dict[str, Any], train: Dataset) -> tuple[Dataset | None, str | None]:
    """Opens a split to score on, or says why it cannot be; neither where there is none.

    It needs none of training's images, as where a person trains on the test split itself, and where training has
    labels the same ones.
    """
    try:
        test = open_data(data, **{**options, "split": split})
    except (ValueError, OSError) as error:
        there_is_none = isinstance(error, UserError) and error.setting == "split"  # as in most folders
        return None, None if there_is_none else f"it cannot be opened: {error}"
    if has_classes(train) and not has_classes(test):
        return None, "it has no labels, or one only"
    if has_classes(train) and not _same_classes(train, test):
        return None, "it has other classes than the training images"
    if bool(torch.isin(train.ids, test.ids).any()):
        return None, "some of its images are training images"
    return test, None


def has_classes(dataset: Dataset) -> bool:
    """Tells whether there are at least two classes to tell apart."""
    return dataset.labels is not None and len(dataset.labels[dataset.labels >= 0].unique()) > 1


def _same_classes(train: Dataset, test: Dataset) -> bool:
    assert train.labels is not None
    assert test.labels is not None
    known = torch.isin(test.labels[test.labels >= 0], train.labels)
    return test.classes == train.classes and bool(known.any())


def _labelled_rows(dataset: Dataset) -> torch.Tensor:
    assert dataset.labels is not None
    return (dataset.labels >= 0).nonzero()[:, 0]


def _hold_out(dataset: Dataset, test_unused: str | None) -> Divided:
    labelled = has_classes(dataset)
    count = min(MAX_HELD_OUT, int(HELD_OUT_SHARE * len(_labelled_rows(dataset) if labelled else dataset)))
    if count < (1 if labelled else 2):  # what is found among one sample alone is always right
        return Divided(dataset, None, test_unused=test_unused)
    test = some(dataset, count, labelled=labelled)
    rest = ~torch.isin(dataset.ids, test.ids)
    return Divided(subset(dataset, rest), test, held_out=True, test_unused=test_unused)
