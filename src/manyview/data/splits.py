"""What folder names mean: `train` and `test` are splits, and folders with images are classes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data.files import is_folder
from manyview.data.named_labels import named_labels

Labels = bool | Literal["auto"] | str
LABELS_HELP = r"whether folders are classes; or a pattern in file names, '([a-z]+)_\d+', or FILE.csv (file, label)"
"""Whether folders are classes; or a pattern in file names or a table of files, see `named_labels`."""

_SPLITS = {
    "train": r"train(ing)?",
    "val": r"val(id|idation)?",
    "test": r"test(ing)?",
    "unlabeled": r"unlabell?ed",
}


def folders_in(root: str) -> list[str]:
    """Names of the visible folders in a folder, sorted."""
    with os.scandir(os.fsencode(root)) as entries:
        names = sorted(entry.name for entry in entries if is_folder(entry))
    return [os.fsdecode(name) for name in names if not name.startswith(b".")]


def check_folder(root: str, what: str = "data") -> None:
    """Raises an error of one line for a path that is not a folder one can read."""
    if not os.path.exists(root):
        raise UserError(what, f"there is no folder {printable(root)!r} {_nearest(root)}")
    if not os.path.isdir(root):
        raise UserError(what, f"expected a folder of images, {printable(root)!r} is a file")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UserError(what, f"the folder {printable(root)!r} may not be read; change its permissions")


def find_splits(root: str) -> dict[str, str]:
    """{"train": "train2017", ...}: which of the folders in `root` are splits; empty if none are.

    Splits are train, val, test and unlabeled, spelled in the usual ways, with a year or without. There must be two, or
    nothing else beside: one folder called train among many may be the class of railway trains.
    """
    folders = folders_in(root)
    found: dict[str, str] = {}
    for folder in folders:
        if (split := split_named(folder)) is not None:
            found.setdefault(split, folder)
    evident = len(found) > 1 or len(folders) == len(found)
    return {split: found[split] for split in _SPLITS if split in found} if evident else {}


def split_named(name: str) -> str | None:
    """The split that a name means: "train", "val", "test" or "unlabeled"; None for any other."""
    return next((split for split, form in _SPLITS.items() if re.fullmatch(form + r"[-_]?(\d{4})?", name.lower())), None)


def picked(found: Collection[str], split: str | None, where: str) -> str | None:
    """Tells which of the splits is meant; "test" is `val` where there is no `test`. None is everything."""
    if split is None:
        return None
    if split in found or (split == "test" and "val" in found):
        return split if split in found else "val"
    there = f"has {', '.join(sorted(found))}; give one of those, or"
    raise UserError("split", f"no {split!r}; {printable(where)!r} {there} leave the split out")


def pick_split(root: str, split: str | None) -> str:
    """The folder in `root` that holds the split, "" for `root` itself.

    "train" of a root without splits is all of it; "test" is `val` where there is no `test`. None is everything.
    """
    found = find_splits(root)
    if split is None or (split == "train" and not found):
        return ""
    folder = found.get(split) or (found.get("val") if split == "test" else None)
    if folder is None and split in found.values():
        folder = split
    if folder is None:
        there = f"has {', '.join(sorted(found))}; give one of those, or" if found else "is not divided into splits;"
        raise UserError("split", f"no {split!r}; {printable(root)!r} {there} leave the split out")
    return folder


def class_labels(
    files: Sequence[str],
    labels: Labels,
    others: Sequence[str] = (),
    *,
    prefix: str = "",
    elsewhere: Callable[[], Sequence[str]] = list,
) -> tuple[Tensor | None, tuple[str, ...]]:
    """Labels (n,) and class names from the first folder of each relative path; (None, ()) without.

    "auto" finds labels if every file lies exactly one folder deep, in at least two folders. `others` are class folders
    of other splits, so that a class has the same number in all of them. Any other text is a pattern or a table
    (`named_labels`), for which `prefix` and the files of other splits, `elsewhere`, are relative to the root.
    """
    if isinstance(labels, str) and labels != "auto":
        return named_labels(files, labels, prefix=prefix, others=elsewhere())
    if not isinstance(labels, bool) and labels != "auto":
        raise UserError("labels", f"expected True, False, 'auto', a pattern or a table's path, got {labels!r}")
    if labels is False:
        return None, ()
    parts = [file.split("/", 2) for file in files]
    names = {p[0] for p in parts if len(p) > 1}
    if labels == "auto" and (len(names) < 2 or any(len(p) != 2 for p in parts)):
        return None, ()
    flat = next((p[0] for p in parts if len(p) < 2), None)
    if flat is not None:
        off = "or switch labels off (--labels no, --data.labels false; False in Python)"
        raise UserError("labels", f"{printable(flat)!r} lies in no class folder; move it into one, {off}")
    classes = sorted(names | set(others), key=os.fsencode)
    number = {name: i for i, name in enumerate(classes)}
    return torch.tensor([number[p[0]] for p in parts]), tuple(printable(c) for c in classes)


def sibling_classes(root: str, split_folder: str, inside: Sequence[str] = ("",)) -> list[str]:
    """Class folders of the other labelled splits; `inside` are the folders of a split that hold them."""
    if not split_folder:
        return []
    others = [folder for split, folder in find_splits(root).items() if split != "unlabeled" and folder != split_folder]
    homes = [os.path.join(root, folder, part) for folder in others for part in inside]
    return [name for home in homes if os.path.isdir(home) for name in folders_in(home)]


def _nearest(root: str) -> str:
    """Says up to which folder a path exists, and what is there."""
    parent = os.path.dirname(os.path.abspath(root))
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    held = ", ".join(printable(name) for name in folders_in(parent)[:5]) if os.access(parent, os.R_OK) else ""
    return f"({printable(parent)!r} has {held or 'no folders'})"
