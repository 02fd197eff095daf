"""The same things seen in several ways: one folder per view, matched by file name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.core.text import printable
from manyview.data.dataset import Unreadable, id_of
from manyview.data.files import Files, Found, scan
from manyview.data.image import EXTENSIONS, Source, decode_array, decode_own
from manyview.data.splits import Labels, check_folder, class_labels, folders_in, pick_split, sibling_classes

REFERENCE = ("rgb", "image", "images")
"""Views that come first if a root has one of them."""

LOOKED_AT = 15  # files that say what a view is
_READ = (*EXTENSIONS, ".npy")

Path = str | os.PathLike[str]


class Form(NamedTuple):
    """What all files of a view have in common, and the file that says so."""

    channels: int
    dtype: torch.dtype
    file: str


class Paired:
    """Samples with a view from each folder, matched by relative path without extension: `rgb/a/1.jpg`, `depth/a/1.npy`.

    root           a folder with one folder per view, or {view: folder}. The first view given is the reference view; of
                   a root it is `rgb`, `image` or `images`, else the first by name
    views          which folders of a root to use, the reference view first; all that hold images or arrays by default
    complete_only  leave out samples that lack a view. Without it a sample has the views that are there
    split, labels  as in `Folder`; a split folder of a root holds the folders of the views

    Pictures of 8 bits are uint8, (3, H, W) or (1, H, W); one channel of 16 or 32 bits, float TIFF and `.npy` are
    float32 (C, H, W) in their own unit: depth in millimetres stays in millimetres. See `decode_own` and `decode_array`.
    The first files of a view say how many channels it has, and of what type: what most of them have. Grey among RGB
    becomes RGB; other files that differ count as unreadable.

    An id is a hash of the relative path without extension, with the split folder of a root in front.

    >>> rooms = Paired({"rgb": "nyu/rgb", "depth": "nyu/depth"}); rooms.counts
    """

    threads = True  # may be read by several at once

    def __init__(
        self,
        root: Path | Mapping[str, Path],
        *,
        views: Sequence[str] | None = None,
        complete_only: bool = False,
        split: str | None = "train",
        labels: Labels = "auto",
    ) -> None:
        self._prefix, self._folders = _view_folders(root, views, split)
        self.found: dict[str, Found] = {view: scan(folder, _READ) for view, folder in self._folders.items()}
        if not isinstance(root, Mapping) and views is None:
            self.found = {view: found for view, found in self.found.items() if len(found.files)}
        _check_views(self.found, self._folders)
        self._files = {view: found.files for view, found in self.found.items()}
        self._stems, self._rows = _match(self._files, complete_only)
        self._label(root, labels)
        self._forms: dict[str, Form | None] = {}
        self.ids = torch.tensor([id_of(self._prefix + stem) for stem in self._stems])

    @property
    def modalities(self) -> tuple[str, ...]:
        return tuple(self._files)

    @property
    def counts(self) -> dict[str, int]:
        """How many samples have each view."""
        return {view: int(n) for view, n in zip(self._files, (self._rows >= 0).sum(0), strict=True)}

    def __len__(self) -> int:
        return len(self._stems)

    def __getitem__(self, index: int) -> Sample:
        index = range(len(self))[index]
        views = {view: self._view(view, path) for view, path in self.paths(index).items()}
        label = -1 if self.labels is None else int(self.labels[index])
        return Sample(int(self.ids[index]), index, views, label)

    def decode(self, view: str, source: Source) -> Tensor:
        """A file of a view, or its bytes, with the channels and the type that the view has."""
        tensor = _decode(source)
        if view not in self._forms:
            self._forms[view] = _usual_form(self._folders[view], self._files[view])
        return _fitted(tensor, self._forms[view])

    def name(self, index: int) -> str:
        """The relative path that the views share, safe to print."""
        return printable(self._prefix + self._stems[index])

    def paths(self, index: int) -> dict[str, str]:
        """Where the views of a sample are, those that it has."""
        rows = zip(self._files.items(), self._rows[index].tolist(), strict=True)
        return {view: os.path.join(self._folders[view], files[row]) for (view, files), row in rows if row >= 0}

    def __repr__(self) -> str:
        return f"Paired({len(self)} samples, {', '.join(f'{n} {v}' for v, n in self.counts.items())})"

    def _label(self, root: Path | Mapping[str, Path], labels: Labels) -> None:
        others = (
            [] if isinstance(root, Mapping) else sibling_classes(os.fspath(root), self._prefix[:-1], self.modalities)
        )
        self.labels, self.classes = class_labels(self._stems, labels, others)

    def _view(self, view: str, path: str) -> Tensor:
        try:
            return self.decode(view, path)
        except Unreadable as error:
            raise Unreadable(f"{view}: {error}") from error


def open_if_paired(root: str, split: str | None = "train", labels: Labels = "auto") -> Paired | None:
    """The folder as `Paired` if one folder in it is called rgb, image or images, and shares names with another."""
    try:
        views = folders_in(os.path.join(root, pick_split(root, split)))
        if len(views) < 2 or not any(view in REFERENCE for view in views):
            return None
        paired = Paired(root, split=split, labels=False)
    except (ValueError, OSError):
        return None
    paired._label(root, labels)  # here, because wrong labels do not make it another kind of folder
    return paired


def _decode(source: Source) -> Tensor:
    if isinstance(source, bytes) or not os.fspath(source).lower().endswith(".npy"):
        return decode_own(source)
    return decode_array(source)


def _usual_form(folder: str, files: Files) -> Form | None:
    """The commonest of the first files that can be read, so that it is the same in every process."""
    forms: list[Form] = []
    for file in files:
        with suppress(Unreadable):
            tensor = _decode(os.path.join(folder, file))
            forms.append(Form(len(tensor), tensor.dtype, file))
        if len(forms) == LOOKED_AT:
            break
    counts = Counter(form[:2] for form in forms)
    return max(forms, key=lambda form: counts[form[:2]], default=None)  # the first of them


def _fitted(tensor: Tensor, form: Form | None) -> Tensor:
    if form is None or (len(tensor), tensor.dtype) == form[:2]:
        return tensor
    if (len(tensor), form.channels) == (1, 3) and tensor.dtype == form.dtype == torch.uint8:
        return tensor.repeat(3, 1, 1)
    channels = f"{len(tensor)} channel{'s' if len(tensor) > 1 else ''} of {_short(tensor.dtype)}"
    usual = f"others, such as {printable(form.file)!r}, have {form.channels} of {_short(form.dtype)}"
    raise Unreadable(f"{channels}, but {usual}; all files of a view must be alike")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _view_folders(
    root: Path | Mapping[str, Path], views: Sequence[str] | None, split: str | None
) -> tuple[str, dict[str, str]]:
    """What goes before a sample's name, and the folder of each view, the reference view first."""
    if isinstance(root, Mapping):
        folders = {view: os.fspath(folder) for view, folder in root.items()}
        for view, folder in folders.items():
            check_folder(folder, f"view {view!r}")
        return "", folders if views is None else {view: _known(folders, view) for view in views}
    check_folder(os.fspath(root))
    part = pick_split(os.fspath(root), split)
    home = os.path.join(os.fspath(root), part)
    there = {view: os.path.join(home, view) for view in sorted(folders_in(home), key=_reference_first)}
    prefix = part + "/" if part else ""
    return prefix, there if views is None else {view: _known(there, view) for view in views}


def _reference_first(view: str) -> tuple[int, str]:
    return (REFERENCE.index(view) if view in REFERENCE else len(REFERENCE), view)


def _known(folders: dict[str, str], view: str) -> str:
    if view not in folders:
        raise UserError(
            "views", f"there is no {view!r}; there are {', '.join(map(printable, folders)) or 'no folders'}"
        )
    return folders[view]


def _check_views(found: dict[str, Found], folders: dict[str, str]) -> None:
    empty = [view for view, what in found.items() if not len(what.files)]
    if empty:
        raise UserError(None, f"view {empty[0]!r}: no images or .npy files below {printable(folders[empty[0]])!r}")
    if len(found) < 2:
        raise UserError(
            "views",
            f"expected at least two folders with images, found {', '.join(map(printable, found)) or 'none'}; "
            f"for a single folder of images use Folder",
        )


def _match(
    files: dict[str, Files], complete_only: bool
) -> tuple[Files, np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """The samples' names, and (n, views) the place of each sample's file in each view's list, -1 where it has none."""
    places = [_by_stem(view, listed) for view, listed in files.items()]
    shared = _shared(places, len(places) if complete_only else 1)
    if not _shared(places, 2) or not shared:
        examples = ", ".join(f"{view} has {printable(listed[0])!r}" for view, listed in files.items())
        what = "no file has all views" if _shared(places, 2) else "no file name is in two views"
        raise UserError("views", f"{what}; {examples}; the paths must be the same but for the extension")
    stems = Files(shared)
    rows = [[place.get(stems.raw(i), -1) for place in places] for i in range(len(stems))]
    return stems, np.array(rows, dtype=np.int64)


def _shared(places: list[dict[bytes, int]], least: int) -> list[bytes]:
    return [stem for stem in set().union(*places) if sum(stem in place for place in places) >= least]


def _by_stem(view: str, files: Files) -> dict[bytes, int]:
    places: dict[bytes, int] = {}
    for row in range(len(files)):
        stem = os.path.splitext(files.raw(row))[0]
        if stem in places:
            both = f"{printable(files[places[stem]])!r} and {printable(files[row])!r}"
            raise UserError(None, f"view {view!r}: {both} differ only in their extension; keep one")
        places[stem] = row
    return places
