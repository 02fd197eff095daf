"""NYU-Depth v2 as it is published: nyu_depth_v2_labeled.mat, a MATLAB 7.3 file, which is HDF5."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.core.sample import Sample
from manyview.core.text import one_line, printable
from manyview.data.dataset import Unreadable, id_of, label_target
from manyview.data.image import unreadable
from manyview.data.normals import Camera
from manyview.data.splits import Labels

RASTERS = {"rgb": "images", "depth": "depths", "raw_depth": "rawDepths", "labels": "labels", "instances": "instances"}
"""The fields of the file that are pictures, by the names that they have here."""
USUAL = ("rgb", "depth")
CAMERA: Camera = (518.85790117450188, 519.46961112127485, 325.58244941119034, 253.73616633400465)
"""fx, fy, cx, cy of the colour camera, onto which the depths are projected: camera_params.m of the set's toolbox."""
SPLITS = "splits.mat"
INDICES = {"train": "trainNdxs", "test": "testNdxs"}


class NyuDepth:
    """The 1,449 labelled pairs of NYU-Depth v2 (Silberman et al., ECCV 2012).

    file        nyu_depth_v2_labeled.mat: `images` (480, 640, 3, n) uint8, `depths` (480, 640, n) in metres, filled in,
                `rawDepths` with 0 where nothing was seen, `labels`, `instances`, `sceneTypes`, ... HDF5 holds MATLAB's
                axes from last to first
    modalities  of rgb, depth, raw_depth, labels and instances; rgb and depth by default
    split       "train" or "test": the published 795 and 654, from splits.mat in the same folder; without that file all
                is train
    labels      whether the type of scene (27 of them) is the label

    Needs `pip install 'manyview[hdf5]'`. Each process opens the file for itself.

    >>> rooms = NyuDepth("nyu_depth_v2_labeled.mat"); rooms[0].modalities["depth"].shape
    torch.Size([1, 480, 640])
    """

    camera = CAMERA

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        modalities: Sequence[str] | None = None,
        split: str | None = "train",
        labels: Labels = "auto",
    ) -> None:
        self.path, self._handles = os.fspath(file), dict[int, Any]()
        self.modalities = tuple(USUAL if modalities is None else modalities)
        self.left_out = tuple(filter(is_label_map, RASTERS)) if modalities is None else ()
        self._check()
        self.numbers = _numbers(self.path, split, len(self._opened()["images"]))
        self.ids = torch.tensor([id_of(f"nyu_depth_v2/{number}") for number in self.numbers])
        types = None if labels is False else _texts(self._opened(), "sceneTypes")
        if labels is True and types is None:
            raise UserError("labels", f"{printable(self.path)} has no scene types; leave labels out")
        self.classes: tuple[str, ...] = () if types is None else tuple(sorted(set(types)))
        place = {name: number for number, name in enumerate(self.classes)}
        self.labels = None if types is None else torch.tensor([place[types[number]] for number in self.numbers])

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities."""
        index = range(len(self))[index]
        read = {name: self._read(name, self.numbers[index]) for name in self.modalities if name in modalities}
        return Sample(int(self.ids[index]), index, read, label_target(self.labels, index))

    def present(self, index: int) -> set[str]:
        return set(self.modalities)

    def name(self, index: int) -> str:
        """The number of the pair, from 1 as in MATLAB."""
        return f"{self.numbers[index] + 1:04}"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_handles": {}}  # a handle is of one process

    def __repr__(self) -> str:
        return f"NyuDepth({printable(self.path)!r}, {len(self)} samples, {', '.join(self.modalities)})"

    def _read(self, name: str, number: int) -> Tensor:
        with unreadable():
            stored = np.asarray(self._opened()[RASTERS[name]][number])  # (C, W, H) or (W, H)
            raster = np.swapaxes(stored if stored.ndim == 3 else stored[None], 1, 2)
            kind = np.uint8 if raster.dtype == np.uint8 else np.float32
            return torch.from_numpy(np.array(raster, dtype=kind, order="C"))
        raise Unreadable(f"{name} cannot be read")

    def _opened(self) -> Any:
        """The file as this process has it open: one that forked processes share would be read at wrong places."""
        if os.getpid() not in self._handles:
            self._handles = {os.getpid(): _hdf5(self.path)}
        return self._handles[os.getpid()]

    def _check(self) -> None:
        stored = self._opened()
        shapes = {name: getattr(stored.get(field), "shape", None) for name, field in RASTERS.items()}
        if len(shapes["rgb"] or ()) != 4 or len(shapes["depth"] or ()) != 3:
            fields = ", ".join(list(stored)[:10]) or "nothing"
            expected = "images (n, 3, W, H) and depths (n, W, H)"
            raise UserError("data", f"{printable(self.path)}: expected {expected}, as NYU-Depth v2 has, found {fields}")
        for name in self.modalities:
            if shapes.get(name) is None:
                there = ", ".join(each for each, shape in shapes.items() if shape)
                raise UserError("modalities", f"there is no {name!r}; there are {there}")


def is_nyu(path: str) -> bool:
    """Tells whether a path is one of a MATLAB file, by its name."""
    return path.lower().endswith(".mat") and os.path.isfile(path)


def nyu_splits(path: str) -> list[str]:
    """The splits of the file: both where splits.mat lies beside it."""
    return list(INDICES) if os.path.isfile(_splits_file(path)) else ["train"]


def _splits_file(path: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(path)), SPLITS)


def _hdf5(path: str) -> Any:
    try:
        import h5py
    except ImportError:
        raise UserError("data", f"{printable(path)} needs h5py: pip install 'manyview[hdf5]'") from None
    try:
        return h5py.File(path, "r")
    except OSError as error:
        why = f"{printable(path)} is no MATLAB 7.3 (HDF5) file: {one_line(str(error))[:200]}"
        raise UserError("data", f"{why}; NYU-Depth v2's is nyu_depth_v2_labeled.mat") from None


def _numbers(path: str, split: str | None, count: int) -> list[int]:
    """The places in the file of a split's pairs, in order."""
    if split is not None and split not in nyu_splits(path):
        beside = f"the published splits are read from {SPLITS} beside {printable(path)}"
        raise UserError("split", f"no {split!r}; {beside}: train and test")
    if split is None or not os.path.isfile(_splits_file(path)):
        return list(range(count))
    from scipy.io import loadmat

    try:
        with unreadable():
            numbers = sorted(int(number) - 1 for number in loadmat(_splits_file(path))[INDICES[split]].reshape(-1))
    except Unreadable as error:
        raise UserError("split", f"{SPLITS} beside {printable(path)} cannot be read: {error}") from None
    if not numbers or numbers[0] < 0 or numbers[-1] >= count:
        raise UserError(
            "split", f"{SPLITS} beside {printable(path)} is not for its {count} pairs; remove it, or mend it"
        )
    return numbers


def _texts(stored: Any, field: str) -> list[str] | None:
    """A cell array of texts: references to arrays of UTF-16 characters."""
    cells = stored.get(field)
    if cells is None:
        return None
    texts = [np.asarray(stored[reference]).reshape(-1) for reference in np.asarray(cells).reshape(-1)]
    return [printable("".join(map(chr, text.tolist()))) for text in texts]
