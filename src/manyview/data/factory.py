"""Opens a data set from what a person would type: a name or a path."""

from __future__ import annotations

import os

from manyview.core.errors import UserError, hint
from manyview.data.dataset import Dataset
from manyview.data.folder import Folder
from manyview.data.named import NAMED, open_named
from manyview.data.paired import Paired, open_if_paired
from manyview.data.splits import Labels, check_folder

SCENES = "scenes"


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
) -> Dataset:
    """Opens a named set of `NAMED` (cifar10, stl10, ...), `scenes`, or else a folder.

    A folder that holds one folder per modality, one of them called rgb, image or images, opens as `Paired`, any other
    as `Folder`. Names win over paths: write ./cifar10 for a folder of that name. `root` and `download` are for named
    sets, `count`, `size` and `seed` for scenes; `modalities` are those of `Scenes` and `Paired`, the reference first.
    """
    text = os.fspath(data)
    if text == SCENES:
        from manyview.data.scenes.dataset import Scenes

        return Scenes(count, size=size, seed=seed, split=split or "train", modalities=modalities or ("image",))
    if text in NAMED:
        if modalities not in (None, ("image",)):
            raise UserError("modalities", f"{text} has pictures alone; leave it out, got {', '.join(modalities)}")
        return open_named(text, root=root, split=split or "train", download=download)
    if not os.path.exists(text):
        raise UserError("data", _unknown(text))
    if modalities is not None:
        return Paired(text, modalities=modalities, split=split, labels=labels)
    paired = open_if_paired(text, split, labels)
    return Folder(text, split=split, labels=labels) if paired is None else paired


def _unknown(text: str) -> str:
    if os.path.dirname(text):  # a path, not a name
        check_folder(text)
    near = hint(text.lower(), [SCENES, *NAMED], cutoff=0.6)
    return f"{text!r} is neither a folder here nor the name of a data set; {near}"
