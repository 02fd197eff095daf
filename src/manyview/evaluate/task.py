"""The task of an evaluation: a model, labelled images to train classifiers on, and others to test them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from manyview import __version__
from manyview.core.errors import UserError
from manyview.core.progress import progress_bar
from manyview.core.text import digest
from manyview.data import Dataset, Loader, Unreadable, subset
from manyview.data.dataset import few_samples, fingerprint, known_targets, label_sets, targets_of
from manyview.data.reader import Pipeline
from manyview.data.selection import having, only_modalities
from manyview.embeddings.checksums import heads_checksum
from manyview.embeddings.model_source import ALL, ModelSource
from manyview.features.embedding_pass import Read, embed_pieces, embedding, loader_batches, on_device, project
from manyview.features.feature_cache import PIECE, FeatureCache, Piece, without_cache
from manyview.views import ViewPipeline

Split = Literal["train", "test"]
Score = tuple[str, float]
Scores = Iterator[Score]

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
        """The modality of the data that each view is derived from."""
        return {view: self.model.modality(view, self.train) for view in self.model.encoders}

    def pipeline(self, augmentation: str = "probe-test", *, view: str | None = None, **options: Any) -> ViewPipeline:
        """Makes the model's pipeline for the data, as `ModelSource.pipeline` does."""
        if augmentation == "probe-test" and self.margin is not None:
            options["resize"] = round(self.margin * self.model.size)
        return self.model.pipeline(self.reference, augmentation, view=view, of=self.modalities, **options)

    @property
    def parts(self) -> list[str]:
        """The parts that are scored separately: [""], or with an encoder per view each view and "all" side by side."""
        views = list(self.model.encoders)
        together = [ALL] if all(self._having(split, ALL).any() for split in SPLITS) else []
        return [""] if len(views) == 1 else [*views, *together]

    def images(self, split: Split, part: str = "") -> Dataset:
        """Returns the samples of a split that have the views of a part of the model, with these modalities alone."""
        whole, modalities = getattr(self, split), self._modalities(part)
        there = self._having(split, part)
        return only_modalities(whole if there.all() else subset(whole, there), modalities)

    def fewest(self, split: Split) -> int:
        """Returns the number of samples of a split for the part of the model with the fewest."""
        return min(self._count(split, part) for part in self.parts)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Counts by part the training and the test samples, where samples lack a view; otherwise returns nothing."""
        if all(bool(self._having(split, ALL).all()) for split in SPLITS):
            return {}
        return {part: (self._count("train", part), self._count("test", part)) for part in self.parts}

    def features(self, split: Split, part: str = "") -> tuple[Tensor, Tensor]:
        """Returns embeddings (n, d), float32 on the CPU, and labels (n,), in the data's order without unreadable
        images."""
        return self.outputs(split, part, "embedding", embedding)

    def outputs(self, split: Split, part: str, name: str, read: Read) -> tuple[Tensor, Tensor]:
        """Returns what `read` reads off the encoders, cached as `name`, in the form of `features`."""
        self.check(several=True)
        if part not in (*self.model.encoders, "", ALL):
            raise UserError("part", f"expected one of {', '.join(map(repr, self.parts))}, got {part!r}")
        found = _side_by_side([self._of_view(split, view, name, read) for view in self._views(part)])
        targets = targets_of(getattr(self, split))
        return found.vectors, targets if len(found.rows) == len(targets) else targets[found.rows]

    def projections(self, split: Split) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Returns the heads' outputs by view (n, p), of unit length, and which samples could be read (n,).

        Those of one sample are in one row. No labels are needed.
        """
        count, vectors, there = len(getattr(self, split)), {}, {}
        for view, head in self.model.heads.items():
            name = f"projection by {heads_checksum({view: head})}"
            found = self._of_view(split, view, name, partial(_projection, head))
            there[view] = torch.zeros(count, dtype=torch.bool).index_fill_(0, found.rows, True)
            vectors[view] = torch.zeros(count, found.vectors.shape[1]).index_copy_(0, found.rows, found.vectors)
        return vectors, there

    def loader(self, data: Dataset, views: Pipeline, *, batch_size: int | None = None, **order: bool) -> Loader:
        """Makes a loader of pictures as the task takes them: all, in the data's order, unless shuffle or drop_last."""
        return Loader(
            data, views, min(batch_size or self.batch_size, len(data)), seed=self.seed, device=self.device,
            workers=self.workers, max_unreadable=1.0,
            shuffle=order.get("shuffle", False), drop_last=order.get("drop_last", False),
        )  # fmt: skip

    def for_model(self, other: ModelSource) -> Task:
        """Returns the same task for another model with the same input, such as the untrained one."""
        fresh = replace(self, model=other)
        vars(fresh).update(_loaders=self._loaders, _present=self._present, fingerprints=self.fingerprints)
        return fresh

    def with_margin(self, margin: float | None) -> Task:
        """Returns the same task with test images resized to `margin` times the model's size before the centre crop."""
        if margin == self.margin:
            return self
        fresh = replace(self, margin=margin)
        vars(fresh).update(fingerprints=self.fingerprints)
        return fresh

    def release(self) -> None:
        """Frees the decoded pictures, which are kept for the next model."""
        self._loaders.clear()

    def check(self, *, several: bool = False) -> None:
        """Refuses data that nothing can be evaluated on; `several` allows samples with several labels."""
        if not several or label_sets(self.train) is None:
            check_labels(self.train, self.data)
            check_labels(self.test, f"the test images of {self.data}")
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
        """Shows a bar of so many steps, and yields a function to call after each (or, with a number, after so many)."""
        return progress_bar(total, text, shown=self.show_bar)

    @cached_property
    def fingerprints(self) -> dict[str, tuple[int, ...]]:
        """Computes fingerprints of the data by split, of ids, labels, sizes and times of files, and some pixels."""
        return {
            split: fingerprint(data, few_samples(data), labels=known_targets(data), classes=data.classes)
            for split, data in (("train", self.train), ("test", self.test))
        }

    def _views(self, part: str) -> list[str]:
        """Returns the views of a part: one, or all."""
        every = list(self.model.encoders)
        return [part] if part in every else every

    def _modalities(self, part: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.modalities[view] for view in self._views(part)))

    def _having(self, split: Split, part: str) -> Tensor:
        """Tells which samples (n,) of a split have all views of a part of the model, by their files."""
        modalities = self._modalities(part)
        if (split, modalities) not in self._present:
            there = having(getattr(self, split))
            self._present[split, modalities] = torch.stack([there[name] for name in modalities]).all(0)
        return self._present[split, modalities]

    def _count(self, split: Split, part: str) -> int:
        return int(self._having(split, part).sum())

    def _of_view(self, split: Split, view: str, name: str, read: Read) -> Piece:
        """Returns rows of the split and what is read off them, from memory, from disk, or from the pictures."""
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
        """Makes a loader of these rows. One of all rows is kept, so that another model need not decode them again."""
        size = min(PIECE, 1 << (max(1, self.batch_size).bit_length() - 1))  # a divisor of PIECE
        views = self.pipeline(view=view)
        if len(rows) < len(data):
            return self.loader(subset(data, rows), views, batch_size=size)
        if (split, view) not in self._loaders:
            self._loaders[split, view] = self.loader(data, views, batch_size=size)
        return self._loaders[split, view]


def _projection(head: nn.Module, encoder: nn.Module, x: Tensor) -> Tensor:
    return project(head, embedding(encoder, x))


def _readable(data: Dataset, rows: Tensor) -> Tensor:
    """Returns those of the rows that can be read."""
    found = []
    for row in rows.tolist():
        with suppress(Unreadable):
            found.append(data[row].index)
    return torch.tensor(found, dtype=torch.long)


def _side_by_side(views: list[Piece]) -> Piece:
    """Returns the rows that all views have, with the vectors of all of them."""
    if len(views) == 1:
        return views[0]
    rows = views[0].rows
    for other in views[1:]:
        rows = rows[torch.isin(rows, other.rows)]
    return Piece(rows, torch.cat([view.vectors[torch.isin(view.rows, rows)] for view in views], 1))


def check_labels(data: Dataset, what: str) -> None:
    """Refuses data without two classes of labels, or with several labels an image."""
    if label_sets(data) is not None:
        raise UserError("data", f"{what} has several labels an image, for which there is shot-transfer alone")
    labels = data.labels
    if labels is None or not bool((labels >= 0).any()):
        raise UserError(
            "data",
            f"{what} has no labels to evaluate with; give a folder with a folder per class, a named set, or "
            "--data.labels with a pattern of file names or a table",
        )
    if len(labels[labels >= 0].unique()) < 2:
        raise UserError("data", f"{what} has one class only; evaluation needs two or more")
