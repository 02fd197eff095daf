"""The images that are embedded, with their labels and files, preprocessed for an encoder by several processes."""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
import torch.multiprocessing as mp
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.config.config import OWN
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data import NAMED, Dataset, Folder, Paired, Unreadable
from manyview.data.dataset import Batched, few_samples, fingerprint
from manyview.data.factory import SCENES, open_data
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.joined import Joined, open_paired_splits
from manyview.data.normals import NORMALS, WithNormals, requested
from manyview.data.paired import open_if_paired
from manyview.data.reader import counter, end_if_over, end_when
from manyview.data.selection import Subset, only_modalities
from manyview.data.slots import shared
from manyview.data.splits import Labels, find_splits, pick_split
from manyview.data.workers import PATIENCE, fitting_workers, patiently
from manyview.features.embedding_pass import ImageBatch, naming_lost_worker
from manyview.features.preprocess import EncoderInput, as_seen, form_in_words
from manyview.views import ViewPipeline


@dataclass(frozen=True, eq=False)
class ImageSource:
    """The images that are embedded, as `open_images` makes them.

    dataset  the images; of one modality, after `narrowed`
    labels   (n,) int64, -1 where there is none
    root     the folder of its files; None where they are no files
    options  that open it again; `splits` lists them where all are taken
    """

    dataset: Dataset
    labels: Tensor
    classes: tuple[str, ...]
    data: str
    root: str | None
    options: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Identifies the images by their ids and labels, the sizes and times of their files, the pixels of a few."""
        data = self.dataset
        count, *sums = fingerprint(data, few_samples(data), labels=self.labels, classes=self.classes)
        return "-".join([str(count), *(f"{each:08x}" for each in sums)])

    def path(self, row: int) -> bytes:
        """Returns the path relative to the root, as the file system has it; for what is no file, its name."""
        dataset, number = _origin(self.dataset, row)
        if isinstance(dataset, Folder):
            return os.fsencode(os.path.relpath(dataset.path(number), self.root))
        if isinstance(dataset, Paired):
            files: dict[str, str] = self.dataset.paths(row)  # type: ignore[attr-defined]
            return os.fsencode(os.path.relpath(files[self.dataset.modalities[0]], self.root))
        return os.fsencode(dataset.name(number))


def open_images(
    data: str | Path | Dataset,
    *,
    split: str | None = None,
    root: str | Path | None = None,
    labels: Labels = "auto",
    download: bool = False,
    max_pixels: MaxPixels = MAX_PIXELS,
    modality: str | None = None,
    views: Sequence[str] = (),
    **more: Any,
) -> ImageSource:
    """Opens a data set with the options of `open_data`: by default all splits of a folder, and `train` of a named set.

    modality  the modality of a plain folder whose files are no pictures and are read in their own unit
    views     whose modalities are opened too where the data has them only on request, or computes them from depth
    more      further options of `open_data`, such as a number of scenes
    """
    if isinstance(data, Dataset):
        if NORMALS in requested(data, views):
            data = WithNormals(data, more.get("camera"), more.get("nodata"))
        origin, _ = _origin(data, 0)
        anywhere = os.sep if isinstance(origin, Paired) else None  # its views may lie anywhere
        home = os.path.abspath(origin.root) if isinstance(origin, Folder) else anywhere
        return ImageSource(data, *_labelled(data), OWN, home, {})
    text = os.fspath(data)
    folder = not is_named(text) and os.path.isdir(text)
    splits = list(find_splits(text)) if folder and split is None else []
    paired = folder and (splits or modality is not None) and _is_paired(text, split)
    if modality is not None and folder and not paired:
        return _only(modality, text, split, labels, max_pixels)
    by_split = splits and not paired  # the folders in it are splits, not classes
    split = (split or "train") if is_named(text) else split
    opened = partial(
        open_data, text, root=root, split=split, labels=False if by_split else labels, download=download,
        max_pixels=max_pixels,
    )  # fmt: skip
    found = opened(**more)
    if asked := requested(found, views):
        more["modalities"] = (*found.modalities, *asked)
        found = opened(**more)
    options = {**_taken(split, splits), "root": None if root is None else os.path.abspath(root), **more}
    if not isinstance(_origin(found, 0)[0], Folder | Paired):
        return ImageSource(found, *_labelled(found), os.fspath(data), None, options)
    home = os.path.abspath(data if os.path.isdir(data) else os.path.dirname(data))  # of a table, its folder
    numbers = _labels_by_split(found, home, labels) if by_split else _labelled(found)
    return ImageSource(found, *numbers, os.path.abspath(data), home, options)


def is_named(data: str) -> bool:
    """Tells whether data is the name of a set or of generated scenes, and no path."""
    return data in (SCENES, *NAMED)


def _is_paired(folder: str, split: str | None) -> bool:
    """Tells whether a folder, or one of its splits, holds a folder per modality."""
    if open_if_paired(folder, split) is not None:
        return True
    return split is None and open_paired_splits(folder) is not None


def _taken(split: str | None, splits: Sequence[str]) -> dict[str, Any]:
    """Records which part of divided data was taken: one split, or all of them."""
    return {"split": split, "splits": list(splits)} if splits else {"split": split}


def narrowed(found: ImageSource, modality: str) -> ImageSource:
    """Returns the images of one modality, without the samples that lack it.

    Data of one modality alone, such as a folder of thermal pictures, is taken for it whatever it is called.
    """
    dataset = found.dataset
    modality = dataset.modalities[0] if len(dataset.modalities) == 1 else modality
    if modality not in dataset.modalities:
        raise UserError("view", f"the data has no {modality!r}; it has {', '.join(dataset.modalities)}")
    chosen = only_modalities(dataset, (modality,))
    return replace(found, dataset=chosen, labels=found.labels[torch.isin(dataset.ids, chosen.ids)])


def check_form(images: ImageSource, input: EncoderInput, what: str) -> None:
    """Refuses images whose channels or type differ from those that the encoder was trained on."""
    name = images.dataset.modalities[0]
    for sample in few_samples(images.dataset)[:1]:
        raw, place = sample.modalities[name], sample.index
        found = form_in_words(len(raw), str(raw.dtype).removeprefix("torch."))
        if found != input.form:
            where = printable(f"{images.dataset.name(place)} in {images.data}")
            raise UserError("data", f"{where} is {found}, and {what} was trained on {input.form}; give its own view")
        origin, row = _origin(images.dataset, place)
        if isinstance(origin, Folder):  # which reads everything as RGB
            input.check_file(origin.path(row), what)


def _only(modality: str, folder: str, split: str | None, labels: Labels, max_pixels: int) -> ImageSource:
    """Reads all files of a folder as one modality, as `Paired` reads them."""
    home = os.path.abspath(os.path.join(folder, pick_split(folder, split)))
    splits = list(find_splits(home))
    found = Paired({modality: home}, labels=False if splits else labels, max_pixels=max_pixels)
    return ImageSource(found, *_labelled(found), home, home, {**_taken(None, splits), "root": None})


def _labelled(dataset: Dataset) -> tuple[Tensor, tuple[str, ...]]:
    """Returns labels and the names of classes."""
    return torch.full((len(dataset),), -1) if dataset.labels is None else dataset.labels, dataset.classes


def _labels_by_split(dataset: Dataset, folder: str, labels: Labels) -> tuple[Tensor, tuple[str, ...]]:
    """Returns the labels of a divided folder's images within their splits, whose folders are no classes."""
    numbers, classes = _labelled(dataset)
    ids, order = dataset.ids.sort()
    for split in find_splits(folder):
        part = open_data(folder, split=split, labels=labels)
        if part.labels is not None and part.classes == (classes or part.classes):
            place = torch.searchsorted(ids, part.ids).clamp(max=len(ids) - 1)
            there = ids[place] == part.ids  # a file that links reach in two ways is in the whole folder once
            numbers[order[place[there]]] = part.labels[there]
            classes = part.classes
    return numbers, classes


def _origin(dataset: Dataset, row: int) -> tuple[Dataset, int]:
    """Finds the data set that a part of it was taken from, or that was joined with others, and the row there."""
    while isinstance(dataset, Subset | WithNormals | Joined):
        if isinstance(dataset, Joined):
            dataset, row = dataset.part(row)
        else:
            row = int(dataset.rows[row]) if isinstance(dataset, Subset) else row
            dataset = dataset.dataset
    return dataset, row


class ImageReader(torch.utils.data.Dataset[ImageBatch]):
    """Reads the rows of a batch in a worker, and leaves out what cannot be read."""

    def __init__(self, dataset: Dataset, pipeline: ViewPipeline) -> None:
        self.dataset, self.pipeline, self.modality = dataset, pipeline, dataset.modalities[0]
        self.read = counter()

    def __getitem__(self, rows: Tensor) -> ImageBatch:
        if isinstance(self.dataset, Batched):
            raw = list(cast(Batched, self.dataset).batch(rows)[self.modality])
            self.read.value += len(rows)
            return ImageBatch(len(rows), shared(rows), shared(as_seen(self.pipeline, raw, self.modality)))
        kept, unreadable = {}, {}
        for row in rows.tolist():
            end_if_over()
            self.read.value += 1
            try:
                kept[row] = self.dataset[row].modalities[self.modality]
            except (Unreadable, KeyError) as error:
                unreadable[row] = f"it has no {self.modality}" if isinstance(error, KeyError) else str(error)
        images = as_seen(self.pipeline, list(kept.values()), self.modality)
        return ImageBatch(len(rows), shared(torch.tensor(list(kept), dtype=torch.long)), shared(images), unreadable)


def read_images(
    reader: ImageReader, batches: Sequence[Tensor], workers: int | None
) -> Generator[ImageBatch, None, None]:
    """Yields what a reader returns for each batch of rows, in order."""
    bytes_each = 3 * 4 * reader.pipeline.augmentations[0].size ** 2
    workers = fitting_workers(workers, bytes_each * max(map(len, batches), default=0))
    workers = min(workers, max(0, len(batches) - 1))
    own = torch.Generator()  # the workers' seeds are not to be drawn from what others draw from
    over = mp.get_context().RawValue("b", 0)  # whether nobody waits for images any more
    loader: DataLoader[ImageBatch] = DataLoader(
        reader, batch_size=None, sampler=batches, num_workers=workers, worker_init_fn=partial(_quietly, over),
        generator=own, timeout=PATIENCE if workers else 0, persistent_workers=workers > 0,
    )  # fmt: skip
    weakref.finalize(loader, partial(setattr, over, "value", 1))  # before it waits for its workers
    with naming_lost_worker():
        yield from patiently(loader, reader.read)


def _quietly(over: Any, _: int) -> None:
    end_when(over)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
