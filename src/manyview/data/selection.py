"""Some samples of a data set, or some of their modalities, as a data set: chosen rows, or classes thinned out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal, cast

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Sample
from manyview.data.dataset import (
    Batched,
    Dataset,
    Shrink,
    Shrinkable,
    few_samples,
    label_sets,
    partial_sample,
    present,
)
from manyview.data.paired import MODALITIES, REFERENCE

Rule = Literal["linear", "exponential"]

RULES: dict[str, Callable[[int, int], float]] = {  # the share that step 1 .. steps keeps
    "linear": lambda step, steps: step / steps,
    "exponential": lambda step, steps: math.exp(step - steps),
}


def subset(dataset: Dataset, index: Tensor | Sequence[int]) -> Dataset:
    """The samples at `index`, in that order: rows, each at most once, or a boolean for every row.

    Ids, labels and class names stay what they were; the index is new and dense. A `Batched` data set stays one.
    """
    rows = torch.as_tensor(index)
    if rows.dtype == torch.bool:
        if rows.shape != (len(dataset),):
            raise UserError("index", f"expected ({len(dataset)},) booleans, got {tuple(rows.shape)}")
        rows = rows.nonzero()[:, 0]
    if rows.dim() != 1 or (rows.numel() and (rows.is_floating_point() or rows.is_complex())):
        raise UserError("index", f"expected whole numbers (n,), got {rows.dtype} {tuple(rows.shape)}")
    if not len(rows):
        raise UserError("index", "no samples are left; choose at least one")
    low, high = (int(end) for end in rows.aminmax())
    if low < 0 or high >= len(dataset):
        raise UserError("index", f"expected rows 0 to {len(dataset) - 1}, got {low} to {high}")
    if len(rows.unique()) < len(rows):
        raise UserError("index", "a row is there twice; a sample is in a data set once")
    kind = BatchedSubset if isinstance(dataset, Batched) else Subset
    return kind(dataset, rows.long())


def only_modalities(dataset: Dataset, modalities: Sequence[str]) -> Dataset:
    """The data set with these modalities alone, without the samples that have none of them."""
    if dataset.modalities == tuple(modalities):
        return dataset
    rows = [row for row in range(len(dataset)) if present(dataset, row) & set(modalities)]
    kind = BatchedSubset if isinstance(dataset, Batched) else Subset
    return kind(dataset, torch.tensor(rows, dtype=torch.int64), modalities)


def missing(dataset: Dataset) -> dict[str, int]:
    """How many samples lack each modality, as far as that is known without reading them; only those that some lack."""
    lacking = {name: int((~there).sum()) for name, there in having(dataset).items()}
    return {name: count for name, count in lacking.items() if count}


def having(dataset: Dataset) -> dict[str, Tensor]:
    """Tells which samples (n,) have each modality, as far as that is known without reading them."""
    found = [present(dataset, row) for row in range(len(dataset))]
    return {name: torch.tensor([name in each for each in found], dtype=torch.bool) for name in dataset.modalities}


def left_out(dataset: Dataset) -> tuple[str, ...]:
    """Folders or columns of a data set that hold label maps, and are therefore not taken for a modality."""
    found: tuple[str, ...] = getattr(dataset, "left_out", ())
    return found


def modality_classes(dataset: Dataset, flag: str) -> list[str]:
    """A line where folders are taken for classes and are named like modalities, as which `flag` would take them."""
    found = [name for name in dataset.classes if MODALITIES.match(name)]
    if len(found) < 2 or len(dataset.modalities) > 1:
        return []
    names = sorted(found, key=lambda name: name not in REFERENCE)
    expected = f"one is named {', '.join(REFERENCE[:-1])} or {REFERENCE[-1]}, and files in two have the same name"
    how = f"modalities are recognised where {expected}; {flag} {','.join(names)} takes them for modalities"
    return [f"the folders {', '.join(names)} are taken for classes; {how}"]


def on_request(dataset: Dataset) -> tuple[str, ...]:
    """What a data set has where it is named alone: label maps, and what scenes can be rendered as."""
    rendered: tuple[str, ...] = getattr(dataset, "renderable", ())
    return (*left_out(dataset), *(name for name in rendered if name not in dataset.modalities))


def reference(dataset: Dataset) -> str:
    """The modality of which colours are taken: that called rgb, image or images, else the first of RGB or of all."""
    for name in REFERENCE:
        if name in dataset.modalities:
            return name
    few = [sample.modalities for sample in few_samples(dataset)]
    photos = {name for each in few for name, x in each.items() if len(x) == 3 and x.dtype == torch.uint8}
    return next((name for name in dataset.modalities if name in photos), dataset.modalities[0])


class Subset:
    """Part of a data set, built by `subset` or `only_modalities`; `rows` (n,) are the places of its samples there."""

    def __init__(self, dataset: Dataset, rows: Tensor, modalities: Sequence[str] | None = None) -> None:
        self.dataset, self.rows = dataset, rows
        self.modalities = dataset.modalities if modalities is None else tuple(modalities)
        self.ids = dataset.ids[rows]
        self.labels = None if dataset.labels is None else dataset.labels[rows]
        sets = label_sets(dataset)
        self.label_sets = None if sets is None else sets[rows]
        self.threads: bool = getattr(dataset, "threads", False)  # may be read by several at once

    @property
    def classes(self) -> tuple[str, ...]:
        return self.dataset.classes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities; the files of others are not opened."""
        index = range(len(self))[index]
        row, wanted = int(self.rows[index]), [name for name in self.modalities if name in modalities]
        sample = partial_sample(self.dataset, row, wanted)
        kept = {name: sample.modalities[name] for name in wanted if name in sample.modalities}
        return replace(sample, index=index, modalities=kept)

    def smaller(self, index: int, shrink: Shrink) -> Sample:
        """A sample whose reference is as many times smaller as `shrink` says, where the data set can do that."""
        if not isinstance(self.dataset, Shrinkable) or tuple(self.modalities) != tuple(self.dataset.modalities):
            return self[index]
        return replace(self.dataset.smaller(int(self.rows[index]), shrink), index=range(len(self))[index])

    def present(self, index: int) -> set[str]:
        return present(self.dataset, int(self.rows[index])) & set(self.modalities)

    @property
    def left_out(self) -> tuple[str, ...]:
        return left_out(self.dataset)

    def name(self, index: int) -> str:
        return self.dataset.name(int(self.rows[index]))

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are, for the modalities that it has here; none where samples are no files."""
        files: Callable[[int], dict[str, str]] = getattr(self.dataset, "paths", lambda row: {})
        return {name: path for name, path in files(int(self.rows[index])).items() if name in self.modalities}


class BatchedSubset(Subset):
    """Part of a data set that makes many samples at once."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        made = cast(Batched, self.dataset).batch(self.rows[index])
        return {name: made[name] for name in self.modalities}


def imbalanced(dataset: Dataset, rule: Rule = "linear", *, group: int | None = None, seed: int = 2021) -> Dataset:
    """Keeps a share of each class l = 0 .. C - 1, as CACR (Zheng et al.) does for its Table 2.

    linear:       (l + 1) / C
    exponential:  exp(l + 1) / exp(C)

    Section 5.1 prints them with l = 1 .. C as floor(l / C) and exp(floor(l / C)). The floor is 0 for every class but
    the last, so as printed the rules would hardly depend on the class; this follows the authors' code.

    `group` joins that many classes into one step: with 10, l is label // 10 and C the number of such groups. By default
    it is 10 for 100 classes, as the code does for CIFAR-100, and 1 otherwise. The number kept of a class is rounded
    down, so the exponential rule leaves nothing of CIFAR-10's first class. Samples without a label are left out.

    Which samples those are depends on the seed and the ids of the class alone, not on the order of the data set: those
    with the smallest `rng.key(seed, id)`.
    """
    labels = dataset.labels
    if labels is None:
        raise UserError("dataset", "has no labels, so there are no classes to thin out")
    shares = keep_shares(len(dataset.classes), rule, group)
    kept = []
    for label, share in enumerate(shares):
        rows = (labels == label).nonzero()[:, 0]
        count = math.floor(share * len(rows) + 1e-9)  # 0.3 of 10 is 3, though 0.3 * 10 may be less in floats
        kept.append(rows[order(key(seed, dataset.ids[rows]))[:count]])
    rows = torch.cat(kept).sort().values
    if not len(rows):
        raise UserError("rule", f"{rule!r} leaves no sample of {len(labels)} in {len(shares)} classes; use more data")
    return subset(dataset, rows)


def keep_shares(classes: int, rule: Rule, group: int | None = None) -> list[float]:
    """The share of each class that a rule keeps; see `imbalanced`."""
    if rule not in RULES:
        raise UserError("rule", f"expected {' or '.join(map(repr, RULES))}, got {rule!r}")
    group = (10 if classes == 100 else 1) if group is None else group
    if group < 1:
        raise UserError("group", f"expected at least 1 class, got {group}")
    steps = math.ceil(classes / group)
    return [RULES[rule](label // group + 1, steps) for label in range(classes)]
