"""What a model is evaluated on: labelled images to train classifiers on, and others to test them on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from manyview import __version__
from manyview.config.config import OWN
from manyview.core.bounds import MOST, MOST_WORKERS, AtLeast, AtMost, Between, check_bounds
from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.core.progress import progress_bar
from manyview.core.text import digest
from manyview.data import Dataset, Loader, TorchDataset, Unreadable, subset
from manyview.data.dataset import few_samples, fingerprint, known_targets, label_sets, targets_of
from manyview.data.factory import Divided, divided_for
from manyview.data.normals import NORMALS, WithNormals, requested
from manyview.data.reader import Pipeline
from manyview.data.selection import having, only_modalities
from manyview.data.torch_dataset import as_dataset
from manyview.embeddings.checksums import heads_checksum
from manyview.embeddings.model_source import ALL, AnyModel, ModelSource, check_named, open_model, run_of
from manyview.features.embedding_pass import Read, embed_pieces, embedding, loader_batches, on_device, project
from manyview.features.feature_cache import PIECE, FeatureCache, Piece, without_cache
from manyview.training.load import normals_options, run_views
from manyview.training.run import Run
from manyview.views import ViewPipeline

Split = Literal["train", "test"]
Score = tuple[str, float]
Scores = Iterator[Score]
Data = str | os.PathLike[str] | Mapping[str, Any] | Dataset | tuple[Dataset, Dataset]

CPU = torch.device("cpu")
SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True, eq=False)
class Task:
    """A model and the data to evaluate it on. Made by `prepare`, which leaves out images without a label.

    Of an encoder a view, a view's scores are of the samples that have it, and those of all side by side of the samples
    that have all: see `images`.

    data         its name
    cache        where features are kept; None: in memory alone
    show_bar     whether progress is shown, where there is a terminal
    held_out     whether the test images were held out of the training images, and are no test split
    why          why the test split is not used, where there is one
    imbalance    the rule by which images were left out of the model's pre-training, where one was; they are here
    checkpoints  files that are of use until the protocol's scores are written down
    margin       the short side of a test image over the side of the middle of it that is seen; None for the usual one
    """

    model: ModelSource
    train: Dataset
    test: Dataset
    data: str
    seed: int = 0
    device: torch.device = CPU
    workers: int | None = None
    batch_size: int = 256
    cache: FeatureCache | None = None
    show_bar: bool = False
    held_out: bool = False
    why: str | None = None
    imbalance: str | None = None
    checkpoints: list[Path] = field(default_factory=list, repr=False)
    margin: float | None = None
    _outputs: dict[tuple[str, ...], Piece] = field(default_factory=dict, init=False, repr=False)
    _loaders: dict[tuple[str, str], Loader] = field(default_factory=dict, init=False, repr=False)
    _present: dict[tuple[str, tuple[str, ...]], Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    @property
    def reference(self) -> str:
        """The data's first modality."""
        return self.train.modalities[0]

    @cached_property
    def modalities(self) -> dict[str, str]:
        """By view, the modality of the data that it is made of."""
        return {view: self.model.modality(view, self.train) for view in self.model.encoders}

    def pipeline(self, augmentation: str = "probe-test", *, view: str | None = None, **options: Any) -> ViewPipeline:
        """What the model sees of the data, as `ModelSource.pipeline` has it."""
        if augmentation == "probe-test" and self.margin is not None:
            options["resize"] = round(self.margin * self.model.size)
        return self.model.pipeline(self.reference, augmentation, view=view, of=self.modalities, **options)

    @property
    def parts(self) -> list[str]:
        """What is scored by itself: [""], or with an encoder per view each view and "all" of them side by side."""
        views = list(self.model.encoders)
        together = [ALL] if all(self._having(split, ALL).any() for split in SPLITS) else []
        return [""] if len(views) == 1 else [*views, *together]

    def images(self, split: Split, part: str = "") -> Dataset:
        """The samples of a split that have what a part of the model sees, with these modalities alone."""
        whole, modalities = getattr(self, split), self._modalities(part)
        there = self._having(split, part)
        return only_modalities(whole if there.all() else subset(whole, there), modalities)

    def fewest(self, split: Split) -> int:
        """How many samples of a split the part of the model has that has the fewest."""
        return min(self._count(split, part) for part in self.parts)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """By part the number of training and of test samples, where samples lack a view; otherwise nothing."""
        if all(bool(self._having(split, ALL).all()) for split in SPLITS):
            return {}
        return {part: (self._count("train", part), self._count("test", part)) for part in self.parts}

    def features(self, split: Split, part: str = "") -> tuple[Tensor, Tensor]:
        """Embeddings (n, d), float32 on the CPU, and labels (n,), in the data's order without unreadable images."""
        return self.outputs(split, part, "embedding", embedding)

    def outputs(self, split: Split, part: str, name: str, read: Read) -> tuple[Tensor, Tensor]:
        """What `read` takes of the encoders, called `name`, as `features` gives it. Computed once."""
        self.check(several=True)
        if part not in (*self.model.encoders, "", ALL):
            raise UserError("part", f"expected one of {', '.join(map(repr, self.parts))}, got {part!r}")
        found = _side_by_side([self._of_view(split, view, name, read) for view in self._views(part)])
        targets = targets_of(getattr(self, split))
        return found.vectors, targets if len(found.rows) == len(targets) else targets[found.rows]

    def projections(self, split: Split) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What the head of each view says of the samples (n, p), of unit length, and which could be read (n,).

        Those of one sample are in one row. It needs no labels.
        """
        count, vectors, there = len(getattr(self, split)), {}, {}
        for view, head in self.model.heads.items():
            name = f"projection by {heads_checksum({view: head})}"
            found = self._of_view(split, view, name, partial(_projection, head))
            there[view] = torch.zeros(count, dtype=torch.bool).index_fill_(0, found.rows, True)
            vectors[view] = torch.zeros(count, found.vectors.shape[1]).index_copy_(0, found.rows, found.vectors)
        return vectors, there

    def loader(self, data: Dataset, views: Pipeline, *, batch_size: int | None = None, **order: bool) -> Loader:
        """Batches of pictures, as the task reads them: all, in the data's order, unless shuffle or drop_last."""
        return Loader(
            data, views, min(batch_size or self.batch_size, len(data)), seed=self.seed, device=self.device,
            workers=self.workers, max_unreadable=1.0,
            shuffle=order.get("shuffle", False), drop_last=order.get("drop_last", False),
        )  # fmt: skip

    def for_model(self, other: ModelSource) -> Task:
        """The same task for another model that sees pictures as this one does, such as the untrained one."""
        fresh = replace(self, model=other)
        vars(fresh).update(_loaders=self._loaders, _present=self._present, fingerprints=self.fingerprints)
        return fresh

    def with_margin(self, margin: float | None) -> Task:
        """The same task with test images that are resized to `margin` times the model's size before they are cut."""
        if margin == self.margin:
            return self
        fresh = replace(self, margin=margin)
        vars(fresh).update(fingerprints=self.fingerprints)
        return fresh

    def release(self) -> None:
        """Frees decoded pictures, which are kept for the next model that is to see them."""
        self._loaders.clear()

    def check(self, *, several: bool = False) -> None:
        """Refuses data that nothing can be evaluated on, in one line; `several` allows samples with several labels."""
        if not several or label_sets(self.train) is None:
            _check_labels(self.train, self.data)
            _check_labels(self.test, f"the test images of {self.data}")
        if self.test.classes != self.train.classes:
            raise UserError("data", f"the test images of {self.data} have other classes than the training images")
        both = int(torch.isin(self.test.ids, self.train.ids).sum())
        if both:
            raise UserError(
                "data",
                f"{both:,} of the {len(self.test):,} test images of {self.data} are among the training images; "
                "give other images to test on",
            )

    def progress(self, total: int, text: str) -> AbstractContextManager[Callable[..., None]]:
        """A bar of so many steps; gives what is to be called after each (with a number, after so many)."""
        return progress_bar(total, text, shown=self.show_bar)

    @cached_property
    def fingerprints(self) -> dict[str, tuple[int, ...]]:
        """Those of the data by split: of ids, labels, sizes and times of files, and the pixels of a few images."""
        return {
            split: fingerprint(data, few_samples(data), labels=known_targets(data), classes=data.classes)
            for split, data in (("train", self.train), ("test", self.test))
        }

    def _views(self, part: str) -> list[str]:
        """The views of a part: one, or all."""
        every = list(self.model.encoders)
        return [part] if part in every else every

    def _modalities(self, part: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.modalities[view] for view in self._views(part)))

    def _having(self, split: Split, part: str) -> Tensor:
        """Which samples (n,) of a split have all that a part of the model sees, as far as their files tell."""
        modalities = self._modalities(part)
        if (split, modalities) not in self._present:
            there = having(getattr(self, split))
            self._present[split, modalities] = torch.stack([there[name] for name in modalities]).all(0)
        return self._present[split, modalities]

    def _count(self, split: Split, part: str) -> int:
        return int(self._having(split, part).sum())

    def _of_view(self, split: Split, view: str, name: str, read: Read) -> Piece:
        """Rows of the split and what is read of them: from memory, from disk, or from the pictures."""
        if (split, view, name) not in self._outputs:
            data = self.images(split, view)
            make = partial(self._make, split, view, data, read)
            if self.cache is None:
                found = without_cache(len(data), make)
            else:
                views = self.pipeline(view=view)
                seen = [repr(views.augmentations), repr(views.picture), repr(views.modalities), repr(views.views)]
                key = digest([__version__, self.fingerprints[split], seen, self.model.checksums[view], name])
                found = self.cache.features(key, len(data), make, partial(_readable, data))
            if not torch.isfinite(found.vectors).all():
                raise UserError("encoder", f"{self.model.name} gives NaN or infinite numbers; it has diverged")
            rows = self._having(split, view).nonzero()[:, 0][found.rows]
            self._outputs[split, view, name] = replace(found, rows=rows)
        return self._outputs[split, view, name]

    def _make(self, split: Split, view: str, data: Dataset, read: Read, pieces: list[Tensor]) -> Iterator[Piece]:
        encoder, rows = self.model.encoders[view], torch.cat(pieces)
        text = f"{self.model.name}: {split} images"
        with self.progress(len(rows), text) as advance, on_device(encoder, self.device):
            batches = loader_batches(self._in_order(split, view, data, rows), rows, view or self.reference)
            yield from embed_pieces(encoder, batches, pieces, read=read, advance=advance)

    def _in_order(self, split: Split, view: str, data: Dataset, rows: Tensor) -> Loader:
        """A loader of these rows. One of all of them is kept, so that another model need not decode anew."""
        size = min(PIECE, 1 << (max(1, self.batch_size).bit_length() - 1))  # a divisor of PIECE
        views = self.pipeline(view=view)
        if len(rows) < len(data):
            return self.loader(subset(data, rows), views, batch_size=size)
        if (split, view) not in self._loaders:
            self._loaders[split, view] = self.loader(data, views, batch_size=size)
        return self._loaders[split, view]


def prepare(
    model: AnyModel,
    data: Data | None = None,
    *,
    seed: int = 0,
    device: str | torch.device = "auto",
    workers: int | None = None,
    batch_size: int = 256,
    cache: FeatureCache | None = None,
    show_bar: bool = False,
    called: str | None = None,
    **encoder: Any,
) -> Task:
    """A task from what a person would name.

    model    as for `open_model`
    data     a name or a folder, a table of it and its options ({"name": "scenes", "count": 500}), a data set, or two
             of them, to train on and to test on. Of a run, without it, the run's own, divided as in training, and with
             the training images that an imbalance left out of it: CACR (C.1) trains its classifiers on all
    called   what the data is called, where it is a data set or two
    encoder  size, weights, pretrained, stem: which one is meant, where `model` is a name
    """
    check_bounds("batch_size", batch_size, [AtLeast(1), AtMost(MOST)])
    check_bounds("workers", workers, [AtLeast(0), AtMost(MOST_WORKERS)])
    check_bounds("seed", seed, [Between(0, (1 << 63) - 1)])
    check_named(model)  # before the data is opened, so that a misspelt run is what the error is about
    place = resolve_device(device)
    run = run_of(model)
    name, found = _open(data, run)
    name = called or name
    source = open_model(model, seed=seed, like=found.train, **encoder)
    if found.test is None:
        _check_labels(found.train, name)
        raise UserError("data", f"{name} has too few labelled images to hold out a tenth; give more, or a test split")
    modalities = list(dict.fromkeys(source.modality(view, found.train) for view in source.encoders))
    train, test = (_usable(each, modalities, name) for each in (found.train, found.test))
    imbalance = None if data is not None or run is None else run.config.data.get("imbalance")
    return Task(
        source, train, test, name, seed, place, workers, batch_size, cache, show_bar,
        found.held_out, found.test_unused, imbalance,
    )  # fmt: skip


def _projection(head: nn.Module, encoder: nn.Module, x: Tensor) -> Tensor:
    return project(head, embedding(encoder, x))


def _readable(data: Dataset, rows: Tensor) -> Tensor:
    """Those of the rows that can be read now."""
    found = []
    for row in rows.tolist():
        with suppress(Unreadable):
            found.append(data[row].index)
    return torch.tensor(found, dtype=torch.long)


def _side_by_side(views: list[Piece]) -> Piece:
    """The rows that all views have, with the vectors of all of them."""
    if len(views) == 1:
        return views[0]
    rows = views[0].rows
    for other in views[1:]:
        rows = rows[torch.isin(rows, other.rows)]
    return Piece(rows, torch.cat([view.vectors[torch.isin(view.rows, rows)] for view in views], 1))


def _open(data: Data | None, run: Run | None) -> tuple[str, Divided]:
    if data is None:
        if run is None:
            raise UserError("data", "is needed; give --data, a folder or a name of `manyview list data`")
        if run.config.own_data:
            raise UserError("data", f"{run.folder} was trained on a data set of your own; give it")
        data = {"name": run.config.data["name"], **run.config.data_options, "imbalance": None}
    several = () if run is None else run_views(run)
    views = several if run is None or several else run.config.views or ()
    more = {} if run is None else normals_options(run, views)
    if isinstance(data, tuple):
        train, test = map(as_dataset, data)
        if isinstance(train, TorchDataset) and isinstance(test, TorchDataset) and not (train.known or test.known):
            test = test.numbered(len(train))  # both count from 0, and are not the same images for that
        if NORMALS in requested(train, views):
            train, test = (WithNormals(each, **more) for each in (train, test))
        return OWN, Divided(train, test)
    named = {"name": os.fspath(data)} if isinstance(data, str | os.PathLike) else data
    if isinstance(named, Mapping):
        options = {**more, **{key: value for key, value in named.items() if key != "name"}}
        return str(named["name"]), divided_for(views, str(named["name"]), unlabelled=bool(several), **options)[0]
    return OWN, divided_for(views, as_dataset(named), unlabelled=bool(several), **more)[0]


def _usable(data: Dataset, modalities: list[str], name: str) -> Dataset:
    """The labelled samples that have one of the modalities or more."""
    unknown = [modality for modality in modalities if modality not in data.modalities]
    if unknown:
        raise UserError("data", f"{name} has no view {unknown[0]!r}; it has {', '.join(data.modalities)}")
    usable = torch.ones(len(data), dtype=torch.bool) if data.labels is None else data.labels >= 0
    there = having(data)
    for each in modalities:
        if not (usable & there[each]).any():
            raise UserError("data", f"{name} has no labelled image with {each}")
    usable &= torch.stack([there[each] for each in modalities]).any(0)
    chosen = data if usable.all() else subset(data, usable)
    return only_modalities(chosen, modalities) if len(modalities) == 1 else chosen


def _check_labels(data: Dataset, what: str) -> None:
    if label_sets(data) is not None:
        raise UserError("data", f"{what} has several labels an image, for which there is shot-transfer alone")
    labels = data.labels
    if labels is None or not bool((labels >= 0).any()):
        raise UserError(
            "data", f"{what} has no labels to evaluate with; give a folder with a folder per class, or a named set"
        )
    if len(labels[labels >= 0].unique()) < 2:
        raise UserError("data", f"{what} has one class only; evaluation needs two or more")
