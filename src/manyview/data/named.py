"""Well-known data sets by name, read by torchvision."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview.core.atomic import expanded
from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.core.text import printable
from manyview.data.dataset import Shrink, id_of, label_set_target, label_target
from manyview.data.image import decode_smaller, reason, to_rgb, unreadable
from manyview.data.listed import hateful_memes, kitti_distance, resisc45, voc2007
from manyview.data.published import WNIDS, class_folders, idx_files, only


@dataclass(frozen=True)
class Official:
    """How torchvision opens a set.

    kind     the class in torchvision.datasets; None if it has none, and `plain` opens it
    splits   our name of each split -> the arguments that choose it
    place    what lies in the root
    classes  how many there are, where torchvision knows no names
    fetched  whether torchvision can download it
    wnids    the classes to keep, of ImageNet
    plain    opens files that torchvision does not read, or not as well; None if there are none
    """

    kind: str | None
    splits: dict[str, dict[str, Any]]
    place: str
    classes: int = 0
    fetched: bool = True
    wnids: tuple[str, ...] = ()
    plain: Callable[[Path, str, Any, dict[str, Any]], Any] | None = None


def _called(*names: str, **others: str) -> dict[str, dict[str, Any]]:
    """Names of splits: those that the set itself calls so, and those it calls otherwise."""
    return {ours: {"split": theirs} for ours, theirs in {**{n: n for n in names}, **others}.items()}


_FLAG: dict[str, dict[str, Any]] = {"train": {"train": True}, "test": {"train": False}}
_ALL: dict[str, dict[str, Any]] = {"train": {}}  # no official split: all of it is for training
_IMAGENET = _called("train", "val", test="val")

NAMED: dict[str, Official] = {
    "cifar10": Official("CIFAR10", _FLAG, "cifar-10-batches-py/"),
    "cifar100": Official("CIFAR100", _FLAG, "cifar-100-python/"),
    "stl10": Official("STL10", _called("train", "test", "unlabeled", "train+unlabeled"), "stl10_binary/"),
    "svhn": Official("SVHN", _called("train", "test", "extra"), "train_32x32.mat and test_32x32.mat", classes=10),
    "mnist": Official("MNIST", _FLAG, "MNIST/raw/, or its four idx files themselves", plain=idx_files),
    "fashion-mnist": Official(
        "FashionMNIST", _FLAG, "FashionMNIST/raw/, or its four idx files themselves", plain=idx_files
    ),
    "food101": Official("Food101", _called("train", "test"), "food-101/"),
    "flowers102": Official("Flowers102", _called("train", "val", "test"), "flowers-102/", classes=102),
    "dtd": Official("DTD", _called("train", "val", "test"), "dtd/dtd/"),
    "pets": Official("OxfordIIITPet", _called("trainval", "test", train="trainval"), "oxford-iiit-pet/"),
    "caltech101": Official("Caltech101", _ALL, "caltech101/101_ObjectCategories/"),
    "eurosat": Official("EuroSAT", _ALL, "eurosat/2750/"),
    "gtsrb": Official("GTSRB", _called("train", "test"), "gtsrb/GTSRB/", classes=43),
    "country211": Official("Country211", _called("train", "valid", "test", val="valid"), "country211/"),
    "fgvc-aircraft": Official("FGVCAircraft", _called("train", "val", "trainval", "test"), "fgvc-aircraft-2013b/"),
    "cars": Official("StanfordCars", _called("train", "test"), "stanford_cars/", fetched=False),
    "pcam": Official("PCAM", _called("train", "val", "test"), "pcam/", classes=2),
    "fer2013": Official("FER2013", _called("train", "test"), "fer2013/fer2013.csv", classes=7, fetched=False),
    "rendered-sst2": Official("RenderedSST2", _called("train", "val", "test"), "rendered-sst2/"),
    "hateful-memes": Official(
        None,
        _called("train", "dev", test="dev"),
        "hateful_memes/ with img/, train.jsonl and dev.jsonl",
        fetched=False,
        plain=hateful_memes,
    ),
    "kitti-distance": Official(
        None, _ALL, "kitti/training/ with image_2/ and label_2/", fetched=False, plain=kitti_distance
    ),
    "resisc45": Official(None, _ALL, "NWPU-RESISC45/", fetched=False, plain=resisc45),
    "voc2007": Official(
        None, _called("train", "val", "trainval", "test"), "VOCdevkit/VOC2007/", fetched=False, plain=voc2007
    ),
    "imagenet": Official(
        "ImageNet", _IMAGENET, "train/ and val/ with a folder per class", fetched=False, plain=class_folders
    ),
    "imagenet100": Official(
        "ImageNet", _IMAGENET, "ImageNet's train/ and val/", fetched=False, wnids=WNIDS, plain=class_folders
    ),
}


class Named:
    """A well-known data set: uint8 RGB (3, H, W) as the modality `image`, grey ones too; opened by `open_named`.

    An id is the position in the official set plus a number for the set and its split, so train and test share none.
    Where a folder is a class it is a hash of set, split, class and file name, so ImageNet-100 has ImageNet's ids; its
    files are read as `Folder` reads them, upright by EXIF, which torchvision ignores.
    """

    modalities = ("image",)

    def __init__(
        self,
        data: Any,
        title: str,
        ids: Tensor,
        labels: Sequence[int | None] | Tensor,
        classes: Sequence[str],
        rows: Tensor,
        label_sets: Tensor | None = None,
    ) -> None:
        self._data, self._title, self.ids, self._rows, self.label_sets = data, title, ids, rows, label_sets
        known = torch.tensor([-1 if label is None else int(label) for label in labels])
        self.labels = known if bool((known >= 0).any()) else None
        self.classes = () if self.labels is None and label_sets is None else tuple(classes)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Sample:
        return self.smaller(index, None)

    def smaller(self, index: int, shrink: Shrink | None) -> Sample:
        """A sample whose picture, if it is a JPEG file in a folder of its class, is as small as `shrink` says."""
        index = range(len(self))[index]
        row, files = int(self._rows[index]), getattr(self._data, "samples", None)  # of torchvision's ImageFolder
        image, size = (self._image(row), None) if files is None else decode_smaller(files[row][0], shrink=shrink)
        targets = label_target(self.labels, index) | label_set_target(self.label_sets, index)
        return Sample(int(self.ids[index]), index, {"image": image}, targets, size)

    def name(self, index: int) -> str:
        """The set, its split and the position there."""
        return f"{self._title}/{int(self._rows[index])}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title!r}, {len(self)} images, {len(self.classes)} classes)"

    def _image(self, row: int) -> Tensor:
        with unreadable():
            return to_rgb(self._data[row][0])


class NamedArray(Named):
    """A named set that is one array (n, C, H, W) in memory, so a batch is one look-up."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {"image": _three(self._data[self._rows[index]])}

    def _image(self, row: int) -> Tensor:
        return _three(self._data[row])


def open_named(
    name: str, *, root: str | os.PathLike[str] | None = None, split: str = "train", download: bool = False
) -> Named:
    """Opens a set of the table `NAMED`.

    root      where the sets lie; by default the environment's MANYVIEW_DATA, else ~/.cache/manyview
    split     "train", "test", or what else the set has, such as "val" and stl10's "unlabeled". Sets without an official
              test split (caltech101, eurosat) are all train; imagenet's test is its val; pets' train is its trainval
    download  whether torchvision may fetch what is missing
    """
    official = NAMED.get(name)
    if official is None:
        raise UserError("data", f"there is no set called {name!r}; there are {', '.join(NAMED)}")
    if split not in official.splits:
        raise UserError("split", f"{name} has no {split!r}; it has {', '.join(official.splits)}")
    home = default_root() if root is None else expanded("root", root)
    arguments = official.splits[split]
    data = _open(name, official, home, arguments, download)
    labels, classes = _labels_of(data), _classes_of(data, official)
    title, part = "imagenet" if official.wnids else name, _split_title(arguments)
    ids, rows = _ids_of(data, title, part, labels), torch.arange(len(labels))
    if official.wnids:
        rows, labels, classes = only(data, official.wnids, labels, classes)
    array = _array_of(data)
    kind, held = (Named, data) if array is None else (NamedArray, array)
    return kind(held, f"{title}/{part}", ids[rows], labels, classes, rows, getattr(data, "label_sets", None))


def default_root() -> Path:
    """Where named sets lie unless somebody says otherwise."""
    given = os.environ.get("MANYVIEW_DATA")
    return expanded("root", given or "~/.cache/manyview")


def _open(name: str, official: Official, root: Path, arguments: dict[str, Any], download: bool) -> Any:
    from torchvision import datasets  # here, because it takes a second that a folder need not wait for

    kind = None if official.kind is None else getattr(datasets, official.kind)
    if download and not official.fetched:
        raise UserError("download", f"{name} cannot be fetched by torchvision; put {official.place} into {str(root)!r}")
    plain = official.plain(root, name, kind, arguments) if official.plain else None
    if plain is not None:
        return plain
    if kind is None or (not root.is_dir() and not download):
        there = "nothing of it is there" if root.is_dir() else "there is no such folder"
        raise UserError(name, _missing(official, root, there))
    try:
        return kind(str(root), **arguments, **({"download": True} if download else {}))
    except (RuntimeError, OSError) as error:
        raise UserError(name, _missing(official, root, " ".join(str(error).split()))) from error
    except ImportError as error:
        raise UserError(name, f"torchvision needs {error.name} to read it: pip install {error.name}") from error
    except ValueError as error:
        what = f"{official.place} in {printable(str(root))!r} cannot be read ({reason(error)})"
        raise UserError(name, f"{what}; replace the damaged file") from error


def _missing(official: Official, root: Path, why: str) -> str:
    fetch = (
        ", or give --data.download (--download of check and embed; download=True in Python) to fetch it"
        if official.fetched
        else "; torchvision cannot fetch it"
    )
    return f"not found; put {official.place} into {printable(str(root))!r}{fetch} ({why})"


def _split_title(arguments: dict[str, Any]) -> str:
    """The split as the official set calls it."""
    if "train" in arguments:
        return "train" if arguments["train"] else "test"
    return str(arguments.get("split", "all"))


def _labels_of(data: Any) -> list[int | None]:
    """Finds the labels without decoding an image; torchvision keeps them under a name per set."""
    for attribute in ("targets", "labels", "_labels", "y"):
        if hasattr(data, attribute):
            return list(getattr(data, attribute))
    if hasattr(data, "_samples"):
        return [label for _, label in data._samples]
    with data.h5py.File(data._base_folder / data._FILES[data._split]["targets"][0]) as file:  # PCAM
        return [int(label) for label in file["y"][:, 0, 0, 0]]


def _ids_of(data: Any, name: str, split: str, labels: list[int | None]) -> Tensor:
    """Makes ids of paths where a class is a folder, for some of the folders may be missing; of positions elsewhere."""
    if hasattr(data, "samples"):
        wnids = getattr(data, "wnids", data.classes)
        within = [(wnids[label], path.rpartition(os.sep + wnids[label] + os.sep)[2]) for path, label in data.samples]
        return torch.tensor([id_of(f"{name}/{split}/{folder}/{file}") for folder, file in within])
    parts = split.split("+")  # STL-10's train+unlabeled: the labelled ones first
    labelled = sum(label is not None and label >= 0 for label in labels)
    counts = [len(labels)] if len(parts) == 1 else [labelled, len(labels) - labelled]
    starts = [id_of(f"{name}/{part}") >> 32 << 32 for part in parts]
    return torch.cat([start + torch.arange(count) for start, count in zip(starts, counts, strict=True)])


def _classes_of(data: Any, official: Official) -> list[str]:
    names = getattr(data, "classes", None) or getattr(data, "categories", None)
    if not names:
        return [str(number) for number in range(official.classes)]
    return [name[0] if isinstance(name, tuple) else str(name) for name in names]  # ImageNet has synonyms


def _array_of(data: Any) -> Tensor | None:
    """All images as one uint8 (n, C, H, W), not copied where its layout allows, for sets that are in memory anyway."""
    held = getattr(data, "data", None)
    if held is None:
        return None
    array = torch.from_numpy(held) if isinstance(held, np.ndarray) else held
    if array.dim() == 3:  # grey: (n, H, W)
        return array[:, None]
    array = array.permute(0, 3, 1, 2) if array.shape[3] == 3 else array
    rows_apart = array.stride(0) >= array[0].numel()
    return array if rows_apart else array.contiguous()  # SVHN's file has the images along the last axis


def _three(images: Tensor) -> Tensor:
    """Expands grey (..., 1, H, W) to RGB."""
    return images.expand(*images.shape[:-3], 3, *images.shape[-2:])
