"""Samples of several modalities: one folder for each, matched by file name."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.core.sample import Sample
from manyview.core.text import printable
from manyview.data.dataset import Shrink, Unreadable, id_of, label_target
from manyview.data.files import Files, Found, scan
from manyview.data.image import MAX_PIXELS, MaxPixels, Source, decode_if_jpeg
from manyview.data.raster import RASTERS, decode_raster
from manyview.data.splits import Labels, check_folder, class_labels, folders_in, pick_split, sibling_classes

REFERENCE = ("rgb", "image", "images")
"""Names of modalities of which one comes first if a root has it."""

MODALITIES = re.compile(
    r"(rgb|images?|colou?r|depth|disparity|normals?|flow|thermal|n?ir|infrared|lidar|radar|sar|multispectral|events?)"
    r"($|[-_\d])",
    re.I,
)
"""Names of folders that hold what a sensor saw: classes are seldom called so."""

FORM_FILES = 15  # files that say what a modality is

Path = str | os.PathLike[str]
Rows = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""(n, modalities): the place of each sample's file in each list, -1 where it has none."""


class Form(NamedTuple):
    """What all files of a modality have in common, and the file that says so."""

    channels: int
    dtype: torch.dtype
    file: str


class Paired:
    """Samples with a modality from each folder, matched by path without extension: `rgb/a/1.jpg`, `depth/a/1.npy`.

    root           a folder with one folder per modality, or {modality: folder}, which may be one alone. The first one
                   given is the reference; of a root it is `rgb`, `image` or `images`, else the first by name
    modalities     which folders of a root to use, the reference first; by default all that hold images or arrays, but
                   for label maps (`labels`, `masks`, ..., by `is_label_map`), which `left_out` names
    complete_only  leave out samples that lack a modality. Without it a sample has those that are there
    split, labels, max_pixels  as in `Folder`; a split folder of a root holds the folders of the modalities

    Pictures of 8 bits are uint8, (3, H, W) or (1, H, W); one channel of 16 or 32 bits, TIFF with several bands and
    `.npy` are float32 (C, H, W) in their own unit: depth in millimetres stays in millimetres. See `decode_raster`.
    The first files of a modality say how many channels it has, and of what type: what most of them have. Grey among RGB
    becomes RGB; other files that differ count as unreadable.

    An id is a hash of the relative path without extension, with the split folder of a root in front.

    >>> rooms = Paired({"rgb": "nyu/rgb", "depth": "nyu/depth"}); rooms.counts
    """

    threads = True  # may be read by several at once
    left_out: tuple[str, ...] = ()
    found: dict[str, Found]
    labels: Tensor | None
    classes: tuple[str, ...]
    _folders: dict[str, str]
    _files: dict[str, Files]
    _stems: Sequence[str]
    _rows: Rows
    _forms: dict[str, Form | None]

    def __init__(
        self,
        root: Path | Mapping[str, Path],
        *,
        modalities: Sequence[str] | None = None,
        complete_only: bool = False,
        split: str | None = "train",
        labels: Labels = "auto",
        max_pixels: MaxPixels = MAX_PIXELS,
    ) -> None:
        self.max_pixels = max_pixels
        self._prefix, self._folders = _folders(root, modalities, split)
        self.found = {name: scan(folder, RASTERS) for name, folder in self._folders.items()}
        if not isinstance(root, Mapping) and modalities is None:
            there = {name: found for name, found in self.found.items() if len(found.files)}
            self.found = {name: found for name, found in there.items() if not is_label_map(name)} or there
            self.left_out = tuple(name for name in there if name not in self.found)
        empty = next((name for name, found in self.found.items() if not len(found.files)), None)
        if empty is not None:
            where = printable(self._folders[empty])
            raise UserError(None, f"modality {empty!r}: no images or .npy files below {where!r}")
        if len(self.found) + len(self.left_out) < 2 and not isinstance(root, Mapping) and modalities is None:
            only = ", ".join(map(printable, self.found)) or "none"
            what = f"expected at least two folders with images, found {only}; for a single folder of images use Folder"
            raise UserError("modalities", what)
        self._files = {name: found.files for name, found in self.found.items()}
        self._stems, self._rows = _match(self._files, complete_only)
        self._label(root, labels)
        self._forms = {}
        self.ids = torch.tensor([id_of(self._prefix + stem) for stem in self._stems])

    @property
    def modalities(self) -> tuple[str, ...]:
        return tuple(self._files)

    @property
    def counts(self) -> dict[str, int]:
        """How many samples have each modality."""
        return {name: int(n) for name, n in zip(self._files, (self._rows >= 0).sum(0), strict=True)}

    def __len__(self) -> int:
        return len(self._stems)

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities; of the others no file is opened."""
        index = range(len(self))[index]
        read = {name: self._read(name, path) for name, path in self.paths(index).items() if name in modalities}
        return Sample(int(self.ids[index]), index, read, label_target(self.labels, index))

    def smaller(self, index: int, shrink: Shrink) -> Sample:
        """A sample whose reference, if it is a JPEG among pictures of colours, is as small as `shrink` says."""
        index = range(len(self))[index]
        paths, first = self.paths(index), self.modalities[0]
        found = self._read_smaller(first, paths[first], shrink) if first in paths else None
        if found is None:
            return self[index]
        read = {name: found[0] if name == first else self._read(name, path) for name, path in paths.items()}
        return Sample(int(self.ids[index]), index, read, label_target(self.labels, index), found[1])

    def present(self, index: int) -> set[str]:
        """The modalities of which a sample has a file."""
        return {name for name, row in zip(self._files, self._rows[index].tolist(), strict=True) if row >= 0}

    def decode(self, name: str, source: Source) -> Tensor:
        """A file of a modality, or its bytes, with the channels and the type that the modality has."""
        return _fitted(decode_raster(source, self.max_pixels), self._form(name))

    def name(self, index: int) -> str:
        """The relative path that the modalities share, safe to print."""
        return printable(self._prefix + self._stems[index])

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are, for the modalities that it has."""
        rows = zip(self._files.items(), self._rows[index].tolist(), strict=True)
        return {name: os.path.join(self._folders[name], files[row]) for (name, files), row in rows if row >= 0}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} samples, {', '.join(f'{n} {v}' for v, n in self.counts.items())})"

    def _label(self, root: Path | Mapping[str, Path], labels: Labels) -> None:
        others = (
            [] if isinstance(root, Mapping) else sibling_classes(os.fspath(root), self._prefix[:-1], self.modalities)
        )
        self.labels, self.classes = class_labels(self._stems, labels, others)

    def _form(self, name: str) -> Form | None:
        if name not in self._forms:
            self._forms[name] = _usual_form(self._folders[name], self._files[name], self.max_pixels)
        return self._forms[name]

    def _read(self, name: str, path: str) -> Tensor:
        with _said_of(name):
            return self.decode(name, path)

    def _read_smaller(self, name: str, path: str, shrink: Shrink) -> tuple[Tensor, tuple[int, int]] | None:
        form = self._form(name)
        if form is None or form[:2] != (3, torch.uint8):
            return None
        with _said_of(name):
            return decode_if_jpeg(path, self.max_pixels, shrink=shrink)


@contextmanager
def _said_of(name: str) -> Iterator[None]:
    """Puts the modality before the reason why a file of it cannot be read."""
    try:
        yield
    except Unreadable as error:
        raise Unreadable(f"{name}: {error}") from error


def open_if_paired(
    root: str, split: str | None = "train", labels: Labels = "auto", max_pixels: int = MAX_PIXELS
) -> Paired | None:
    """Opens a root as `Paired` if one folder in it is called rgb, image or images, and shares names with another."""
    try:
        folders = folders_in(os.path.join(root, pick_split(root, split)))
        if len(folders) < 2 or not any(folder in REFERENCE for folder in folders):
            return None
        paired = Paired(root, split=split, labels=False, max_pixels=max_pixels)
    except (ValueError, OSError):
        return None
    paired._label(root, labels)  # here, because wrong labels do not make it another kind of folder
    return paired


def _usual_form(folder: str, files: Files, max_pixels: int) -> Form | None:
    """The commonest of the first files that can be read, so that it is the same in every process."""
    forms: list[Form] = []
    for file in files:
        with suppress(Unreadable):
            tensor = decode_raster(os.path.join(folder, file), max_pixels)
            forms.append(Form(len(tensor), tensor.dtype, file))
        if len(forms) == FORM_FILES:
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
    raise Unreadable(f"{channels}, but {usual}; all files of a modality must be alike")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _folders(
    root: Path | Mapping[str, Path], modalities: Sequence[str] | None, split: str | None
) -> tuple[str, dict[str, str]]:
    """What goes before a sample's name, and the folder of each modality, the reference first."""
    if isinstance(root, Mapping):
        prefix, there = "", {name: os.fspath(folder) for name, folder in root.items()}
        for name, folder in there.items():
            check_folder(folder, f"modality {name!r}")
    else:
        check_folder(os.fspath(root))
        part = pick_split(os.fspath(root), split)
        home, prefix = os.path.join(os.fspath(root), part), part + "/" if part else ""
        names = sorted(folders_in(home), key=lambda name: (*(name != usual for usual in REFERENCE), name))
        there = {name: os.path.join(home, name) for name in names}
    for name in modalities or ():
        if name not in there:
            known = ", ".join(map(printable, there)) or "no folders"
            raise UserError("modalities", f"there is no {name!r}; there are {known}")
    return prefix, there if modalities is None else {name: there[name] for name in modalities}


def _match(files: dict[str, Files], complete_only: bool) -> tuple[Files, Rows]:
    """The samples' names, and where their files are."""
    places = [_by_stem(name, listed) for name, listed in files.items()]
    having = Counter(stem for place in places for stem in place)
    paired = max(having.values()) > 1 or len(places) == 1
    shared = [stem for stem, count in having.items() if count == len(places) or not complete_only]
    if not paired or not shared:
        examples = ", ".join(f"{name} has {printable(listed[0])!r}" for name, listed in files.items())
        what = "no file has all modalities" if paired else "no file name is in two modalities"
        raise UserError("modalities", f"{what}; {examples}; the paths must be the same but for the extension")
    stems = Files(shared)
    rows = [[place.get(stems.raw(i), -1) for place in places] for i in range(len(stems))]
    return stems, np.array(rows, dtype=np.int64)


def _by_stem(name: str, files: Files) -> dict[bytes, int]:
    places: dict[bytes, int] = {}
    for row in range(len(files)):
        stem = os.path.splitext(files.raw(row))[0]
        if stem in places:
            both = f"{printable(files[places[stem]])!r} and {printable(files[row])!r}"
            raise UserError(None, f"modality {name!r}: {both} differ only in their extension; keep one")
        places[stem] = row
    return places
