"""The images that are embedded, with their labels and files, and as an encoder sees them, read by several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data import NAMED, Dataset, Folder, Paired, Unreadable
from manyview.data.dataset import Batched, few_samples, fingerprint
from manyview.data.factory import SCENES, open_data
from manyview.data.selection import Subset, only_modalities
from manyview.data.splits import Labels, find_splits
from manyview.data.workers import lost_worker, usual_workers
from manyview.features.embedding_pass import ImageBatch
from manyview.features.preprocess import as_seen
from manyview.training.build import OWN
from manyview.views import ViewPipeline
from manyview.views.view import view_named


@dataclass(frozen=True, eq=False)
class ImageSource:
    """The images that are embedded. Made by `open_images`.

    dataset  the images; of one view, after `one_view`
    labels   (n,) int64, -1 where there is none
    root     the folder that its files are in; None where they are no files
    options  that open it again
    """

    dataset: Dataset
    labels: Tensor
    classes: tuple[str, ...]
    data: str
    root: str | None
    options: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Identifies the images by their ids, their labels, and the pixels of a few."""
        data = self.dataset
        count, total = fingerprint(data, few_samples(data), labels=self.labels, classes=self.classes)
        return f"{count}-{total:08x}"

    def path(self, row: int) -> bytes:
        """The path relative to the root, as the file system has it; of what is no file, its name."""
        dataset, row = _origin(self.dataset, row)
        if isinstance(dataset, Folder):
            return os.fsencode(os.path.relpath(dataset.path(row), self.root))
        if isinstance(dataset, Paired):
            return os.fsencode(os.path.relpath(dataset.paths(row)[self.dataset.modalities[0]], self.root))
        return os.fsencode(dataset.name(row))


def open_images(
    data: str | Path | Dataset,
    *,
    split: str | None = None,
    root: str | Path | None = None,
    labels: Labels = "auto",
    download: bool = False,
) -> ImageSource:
    """A data set, with the options of `open_data`. Without a split, all of a folder."""
    if isinstance(data, Dataset):
        origin, _ = _origin(data, 0)
        anywhere = os.sep if isinstance(origin, Paired) else None  # its views may lie anywhere
        home = os.path.abspath(origin.root) if isinstance(origin, Folder) else anywhere
        return ImageSource(data, *_labelled(data), OWN, home, {})
    named = os.fspath(data) in (SCENES, *NAMED)
    divided = split is None and not named and os.path.isdir(data) and find_splits(os.fspath(data))
    found = open_data(data, root=root, split=split, labels=False if divided else labels, download=download)
    options = {"split": split, "root": None if root is None else os.path.abspath(root)}
    if not isinstance(found, Folder | Paired):
        return ImageSource(found, *_labelled(found), os.fspath(data), None, options)
    home = os.path.abspath(data)
    numbers = _labels_by_split(found, home, labels) if divided else _labelled(found)
    return ImageSource(found, *numbers, home, home, options)


def one_view(found: ImageSource, view: str) -> ImageSource:
    """The images of one view, the first if `view` is REFERENCE; without the samples that lack it."""
    dataset, first = found.dataset, found.dataset.modalities[0]
    modality = view_named(view or first, first).modality
    if modality not in dataset.modalities:
        raise UserError("view", f"the data has no {view!r}; it has {', '.join(dataset.modalities)}")
    chosen = only_modalities(dataset, (modality,))
    return replace(found, dataset=chosen, labels=found.labels[torch.isin(dataset.ids, chosen.ids)])


def _labelled(dataset: Dataset) -> tuple[Tensor, tuple[str, ...]]:
    """Labels and the names of classes."""
    return torch.full((len(dataset),), -1) if dataset.labels is None else dataset.labels, dataset.classes


def _labels_by_split(dataset: Dataset, folder: str, labels: Labels) -> tuple[Tensor, tuple[str, ...]]:
    """The labels that the images of a divided folder have in their splits: its folders are splits, not classes."""
    numbers, classes = _labelled(dataset)
    ids, order = dataset.ids.sort()
    for split in find_splits(folder):
        part = open_data(folder, split=split, labels=labels)
        if isinstance(part, Paired):
            raise UserError("split", f"{printable(folder)} is divided, and has several views; give --split {split}")
        if part.labels is not None and part.classes == (classes or part.classes):
            place = torch.searchsorted(ids, part.ids).clamp(max=len(ids) - 1)
            there = ids[place] == part.ids  # a file that links reach in two ways is in the whole folder once
            numbers[order[place[there]]] = part.labels[there]
            classes = part.classes
    return numbers, classes


def _origin(dataset: Dataset, row: int) -> tuple[Dataset, int]:
    """The data set that a part of it was taken of, and the row there."""
    while isinstance(dataset, Subset):
        row = int(dataset.rows[row])
        dataset = dataset.dataset
    return dataset, row


class ImageReader(torch.utils.data.Dataset[ImageBatch]):
    """What a worker does with the rows of a batch: reads them, and leaves out what cannot be read."""

    def __init__(self, dataset: Dataset, pipeline: ViewPipeline) -> None:
        self.dataset, self.pipeline, self.modality = dataset, pipeline, dataset.modalities[0]

    def __getitem__(self, rows: Tensor) -> ImageBatch:
        if isinstance(self.dataset, Batched):
            raw = list(cast(Batched, self.dataset).batch(rows)[self.modality])
            return ImageBatch(len(rows), rows, as_seen(self.pipeline, raw, self.modality))
        kept, unreadable = {}, {}
        for row in rows.tolist():
            try:
                kept[row] = self.dataset[row].modalities[self.modality]
            except (Unreadable, KeyError) as error:
                unreadable[row] = f"it has no {self.modality}" if isinstance(error, KeyError) else str(error)
        images = as_seen(self.pipeline, list(kept.values()), self.modality)
        return ImageBatch(len(rows), torch.tensor(list(kept), dtype=torch.long), images, unreadable)


def read_images(
    reader: ImageReader, batches: Sequence[Tensor], workers: int | None
) -> Generator[ImageBatch, None, None]:
    """What a reader gives for each batch of rows, in order."""
    workers = min(usual_workers() if workers is None else workers, max(0, len(batches) - 1))
    own = torch.Generator()  # the workers' seeds are not to be drawn from what others draw from
    loader: DataLoader[ImageBatch] = DataLoader(
        reader, batch_size=None, sampler=batches, num_workers=workers, worker_init_fn=_quietly, generator=own
    )
    try:
        yield from loader
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not lost_worker(error):
            raise
        why = "a process that reads images was killed, perhaps for lack of memory; try --workers 1"
        raise UserError("workers", why) from None


def _quietly(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
