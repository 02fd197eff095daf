"""What a subject is judged on: labelled images to learn from and others to be asked about."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from manyview import __version__
from manyview.core.errors import UserError
from manyview.core.progress import progress_bar
from manyview.data import Dataset, Loader, TorchDataset, Unreadable, subset
from manyview.data.holdout import Divided, divided
from manyview.data.selection import only_modalities
from manyview.data.torch_dataset import as_dataset
from manyview.embeddings.model_source import (
    ALL,
    REFERENCE,
    ModelSource,
    What,
    a_few,
    check_named,
    digest,
    run_of,
    subject,
)
from manyview.encoders.encoder import Stem
from manyview.features.amounts import check_amounts
from manyview.features.extract import Read, embedding, extract
from manyview.features.feature_cache import PIECE, FeatureCache, Made, without
from manyview.training.build import OWN
from manyview.training.run import Run
from manyview.views import ViewPipeline

Split = Literal["train", "test"]
Score = tuple[str, float]
Scores = Iterator[Score]
Data = str | os.PathLike[str] | Mapping[str, Any] | Dataset | tuple[Dataset, Dataset]

CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Task:
    """A subject and the data to judge it on. Made by `prepare`, which leaves out images without a label.

    data   its name
    aside  the test images were kept aside, and are no test split
    why    why the test split is not used, where there is one
    store  where features are kept; None: in memory alone
    bar    whether progress is shown, where there is a terminal
    """

    subject: ModelSource
    train: Dataset
    test: Dataset
    data: str
    seed: int = 0
    device: torch.device = CPU
    workers: int | None = None
    batch_size: int = 256
    store: FeatureCache | None = None
    bar: bool = False
    aside: bool = False
    why: str | None = None
    _seen: dict[tuple[str, ...], Made] = field(default_factory=dict, init=False, repr=False)
    _loaders: dict[tuple[str, str], Loader] = field(default_factory=dict, init=False, repr=False)
    _left: list[Path] = field(default_factory=list, init=False, repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def parts(self) -> list[str]:
        """What is judged by itself: [""], or with an encoder per view each view and "all" of them side by side."""
        views = list(self.subject.encoders)
        return [""] if len(views) == 1 else [*views, ALL]

    def features(self, split: Split, part: str = "") -> tuple[Tensor, Tensor]:
        """Embeddings (n, d), float32 on the CPU, and labels (n,), in the data's order without unreadable images."""
        return self.seen(split, part, "embedding", embedding)

    def seen(self, split: Split, part: str, name: str, read: Read) -> tuple[Tensor, Tensor]:
        """What `read` takes of the encoders, called `name`, as `features` gives it. Computed once."""
        self.check()
        made = [self._of_view(split, view, name, read) for view in self._views(part)]
        labels = self.split(split).labels
        assert labels is not None
        rows, vectors = made[0] if len(made) == 1 else _side_by_side(made)
        return vectors, labels if len(rows) == len(labels) else labels[rows]

    def loader(
        self,
        split: Split,
        views: ViewPipeline,
        *,
        shuffle: bool,
        batch_size: int | None = None,
        drop_last: bool | None = None,
    ) -> Loader:
        """Pixels; when shuffled, the last batch that is not full is left out, unless `drop_last` says otherwise."""
        data = self.split(split)
        drop_last = shuffle if drop_last is None else drop_last
        return self._loader(data, views, batch_size or self.batch_size, shuffle=shuffle, drop_last=drop_last)

    def split(self, split: Split) -> Dataset:
        return self.train if split == "train" else self.test

    def against(self, other: ModelSource) -> Task:
        """The same task for another subject that sees pictures as this one does, such as the untrained one."""
        fresh = replace(self, subject=other)
        vars(fresh).update(_loaders=self._loaders, _left=self._left, marks=self.marks)  # the data is the same
        return fresh

    def learning_from(self, train: Dataset) -> Task:
        """The same task with other images to learn from."""
        fresh = replace(self, train=train)
        vars(fresh).update(_left=self._left)
        return fresh

    def release(self) -> None:
        """Lets go of decoded pictures, which are kept for the next subject that is to see them."""
        self._loaders.clear()

    def leave(self, path: Path) -> None:
        """Notes a file that is of use until the protocol's scores are written down."""
        self._left.append(path)

    def forget(self) -> None:
        """Removes such files."""
        while self._left:
            with suppress(OSError):
                self._left.pop().unlink(missing_ok=True)

    def check(self) -> None:
        """Refuses data that nothing can be judged on, in one line."""
        _check_labels(self.train, f"data: {self.data}")
        _check_labels(self.test, f"data: the test images of {self.data}")
        if self.test.classes != self.train.classes:
            raise UserError("data", f"the test images of {self.data} have other classes than those to learn from")
        both = int(torch.isin(self.test.ids, self.train.ids).sum())
        if both:
            raise UserError(
                "data",
                f"{both:,} of the {len(self.test):,} test images of {self.data} are among those to learn from; "
                "give other images to test on",
            )

    def progress(self, total: int, text: str) -> AbstractContextManager[Callable[..., None]]:
        """A bar of so many steps; gives what is to be called after each (with a number, after so many)."""
        return progress_bar(total, text, shown=self.bar)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Check sums of the data, by split: ids, labels, and the pixels of a few images."""
        return {"train": fingerprint(self.train), "test": fingerprint(self.test)}

    def _views(self, part: str) -> list[str]:
        if part in self.subject.encoders and part != REFERENCE:
            return [part]
        if part in ("", ALL):
            return list(self.subject.encoders)
        raise UserError("part", f"expected one of {', '.join(map(repr, self.parts))}, got {part!r}")

    def _of_view(self, split: Split, view: str, name: str, read: Read) -> Made:
        """Rows of the data and what is seen of them: from memory, from disk, or from the pictures."""
        if (split, view, name) not in self._seen:
            data = only_modalities(self.split(split), (view or self.train.modalities[0],))
            make = self._maker(split, view, data, read)
            if self.store is None:
                found = without(len(data), make)
            else:
                key = self._key(split, view, data, name)
                found = self.store.features(key, len(data), make, partial(_readable, data))
            if not torch.isfinite(found[1]).all():
                raise UserError("encoder", f"{self.subject.name} gives NaN or infinite numbers; it has diverged")
            self._seen[split, view, name] = found
        return self._seen[split, view, name]

    def _maker(self, split: Split, view: str, data: Dataset, read: Read) -> Callable[[list[Tensor]], Iterator[Made]]:
        def make(pieces: list[Tensor]) -> Iterator[Made]:
            rows = torch.cat(pieces)
            with self.progress(len(rows), f"{self.subject.name}: {split} images") as advance:
                loader = self._in_order(split, view, data, rows)
                yield from extract(self.subject.encoders[view], read, loader, pieces, advance)

        return make

    def _key(self, split: Split, view: str, data: Dataset, name: str) -> str:
        stack = self.subject.stack(view=data.modalities[0])
        look = [repr(stack.augmentations), repr(stack.picture), repr(stack.modalities), data.modalities[0]]
        return digest([__version__, self.marks[split], look, self.subject.marks[view], name])

    def _in_order(self, split: Split, view: str, data: Dataset, rows: Tensor) -> Loader:
        """Of these rows. One of all of them is kept, so that another subject need not decode anew."""
        size = min(PIECE, 1 << (max(1, self.batch_size).bit_length() - 1))  # a divisor of PIECE
        stack = self.subject.stack(view=data.modalities[0])
        if len(rows) < len(data):
            return self._loader(subset(data, rows), stack, size, shuffle=False, drop_last=False)
        if (split, view) not in self._loaders:
            self._loaders[split, view] = self._loader(data, stack, size, shuffle=False, drop_last=False)
        return self._loaders[split, view]

    def _loader(self, data: Dataset, views: ViewPipeline, batch_size: int, *, shuffle: bool, drop_last: bool) -> Loader:
        return Loader(
            data, views, min(batch_size, len(data)), seed=self.seed, shuffle=shuffle, drop_last=drop_last,
            device=self.device, workers=self.workers, max_unreadable=1.0,
        )  # fmt: skip


def prepare(
    what: What | ModelSource | Mapping[str, What | ModelSource],
    data: Data | None = None,
    *,
    size: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    pretrained: bool = False,
    stem: Stem = None,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int | None = None,
    batch_size: int = 256,
    store: FeatureCache | None = None,
    bar: bool = False,
) -> Task:
    """A task from what a person would name.

    what  as for `subject`, with its options `size` to `stem`
    data  a name or a folder, a table of it and its options ({"name": "scenes", "count": 500}), a data set, or two of
          them, to learn from and to test on. Of a run, without it, the run's own, divided as in training
    """
    check_amounts(batch_size=batch_size, workers=workers, seed=seed)
    check_named(what)  # before the data, so that a run that is misspelt is what is told
    place = _device(device)
    name, found = _opened(data, run_of(what))
    judged = subject(what, size=size, weights=weights, pretrained=pretrained, stem=stem, seed=seed, like=found.train)
    if found.test is None:
        _check_labels(found.train, f"data: {name}")
        raise UserError("data", f"{name} has too few labelled images to keep a tenth aside; give more, or a test split")
    views = [view or found.train.modalities[0] for view in judged.encoders]
    train, test = (_usable(each, views, name) for each in (found.train, found.test))
    return Task(
        judged, train, test, name, seed, place, workers, batch_size, store, bar, found.held_out, found.test_unused
    )  # fmt: skip


def fingerprint(data: Dataset) -> str:
    """A check sum of ids and labels, and of the pixels of a few images, for ids may be mere numbers."""
    labels = b"" if data.labels is None else data.labels.numpy().tobytes()
    pixels = 0
    for views in a_few(data):
        for name in sorted(views):
            pixels = zlib.crc32(views[name].contiguous().numpy().tobytes(), pixels)
    return digest([len(data), zlib.crc32(data.ids.numpy().tobytes()), zlib.crc32(labels), list(data.classes), pixels])


def _readable(data: Dataset, rows: Tensor) -> Tensor:
    """Those of the rows that can be read now."""
    found = []
    for row in rows.tolist():
        with suppress(Unreadable):
            found.append(data[row].index)
    return torch.tensor(found, dtype=torch.long)


def _side_by_side(made: list[Made]) -> Made:
    """The rows that all have, and all that is seen of each."""
    rows = made[0][0]
    for others, _ in made[1:]:
        rows = rows[torch.isin(rows, others)]
    return rows, torch.cat([vectors[torch.isin(found, rows)] for found, vectors in made], 1)


def _opened(data: Data | None, run: Run | None) -> tuple[str, Divided]:
    if data is None:
        if run is None:
            raise UserError("data", "is needed; give --data, a folder or a name of `manyview list data`")
        data = run.config.data
        if data["name"] == OWN:
            raise UserError("data", f"{run.folder} was trained on a data set of your own; give it")
    if isinstance(data, tuple):
        return OWN, Divided(*_apart(*map(as_dataset, data)))
    if isinstance(data, str | os.PathLike):
        return os.fspath(data), divided(os.fspath(data))
    if isinstance(data, Mapping):
        options = {key: value for key, value in data.items() if key != "name"}
        return str(data["name"]), divided(data["name"], **options)
    return OWN, divided(as_dataset(data))


def _apart(train: Dataset, test: Dataset) -> tuple[Dataset, Dataset]:
    """Two data sets of a person's own, which both are numbered from 0, are not the same images for that."""
    if isinstance(train, TorchDataset) and isinstance(test, TorchDataset) and not (train.known or test.known):
        test = test.numbered(len(train))
    return train, test


def _usable(data: Dataset, views: list[str], name: str) -> Dataset:
    """The labelled samples that have all of the views."""
    unknown = [view for view in views if view not in data.modalities]
    if unknown:
        raise UserError("data", f"{name} has no view {unknown[0]!r}; it has {', '.join(data.modalities)}")
    usable = torch.ones(len(data), dtype=torch.bool) if data.labels is None else data.labels >= 0
    narrow = [only_modalities(data, (view,)) for view in views]
    for each in narrow:
        usable &= torch.isin(data.ids, each.ids)
    if not usable.any():
        raise UserError("data", f"{name} has no labelled image with {' and '.join(views)}")
    only = narrow[0] if len(views) == 1 and len(narrow[0]) == len(data) else data
    chosen = only if usable.all() else subset(only, usable)
    return only_modalities(chosen, views) if len(views) == 1 else chosen


def _check_labels(data: Dataset, what: str) -> None:
    labels = data.labels
    if labels is None or not bool((labels >= 0).any()):
        raise UserError(
            None, f"{what} has no labels to judge by; give a folder with a folder per class, or a named set"
        )
    if len(labels[labels >= 0].unique()) < 2:
        raise UserError(None, f"{what} has one class only; judging needs two or more")


def _device(device: str | torch.device) -> torch.device:
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise UserError("device", "cuda was asked for and there is none here; leave it out, or give cpu")
    try:
        return torch.device(device)
    except RuntimeError:
        raise UserError("device", f"expected auto, cpu or cuda, got {device!r}") from None
