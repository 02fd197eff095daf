"""What training must not see: images kept aside to score the encoder on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from manyview.core.rng import key, order
from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset
from manyview.data.factory import open_data
from manyview.data.imbalance import imbalanced
from manyview.data.paired import Paired
from manyview.data.selection import Subset, subset

SHARE, MOST = 0.1, 1000  # of the images, and how many, that are kept aside where there is no test split
ASIDE = 0x5C0DE  # keeps this draw apart from others with the same seed


@dataclass(frozen=True, eq=False)
class Divided:
    """Images to learn from, and labelled images to score on.

    test   None where there are no labels
    aside  whether those were kept aside, and are no test split
    why    why the test split is not used, where there is one
    """

    train: Dataset
    test: Dataset | None
    aside: bool = False
    why: str | None = None


def divided(data: Dataset | str, *, imbalance: Any = None, **options: Any) -> Divided:
    """The training images of a data set and its test split; without one, a tenth of the labelled images is kept aside.

    So it is where the test split is of no use, which `why` then says. At most `MOST` are kept aside.
    `options` are those of `open_data`. Which images are kept aside depends on their ids alone.
    """
    train = open_data(data, **options) if isinstance(data, str) else data
    train = train if imbalance is None else imbalanced(train, imbalance)
    if not _labelled(train):
        return Divided(train, None)
    if not isinstance(data, str):
        return _aside(train, None)
    reasons = []
    for split in ("test", "val"):  # a test split may be published without its labels
        test, why = _split(data, split, options, train)
        if test is not None:
            return Divided(train, test)
        reasons.append(why)
    return _aside(train, next(filter(None, reasons), None))


def some(dataset: Dataset, count: int) -> Dataset:
    """At most `count` labelled samples, chosen by their ids alone."""
    assert dataset.labels is not None
    labelled = (dataset.labels >= 0).nonzero()[:, 0]
    chosen = labelled[order(key(ASIDE, dataset.ids[labelled]))[:count]]
    return dataset if len(chosen) == len(dataset) else subset(dataset, chosen.sort().values)


def only_modalities(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """A data set of some of its modalities, without the samples that lack all of them."""
    if dataset.modalities == names:
        return dataset
    rows = [row for row in range(len(dataset)) if any(_has(dataset, name, row) for name in names)]
    dataset = dataset if len(rows) == len(dataset) else subset(dataset, rows)
    return (BatchedSomeModalities if isinstance(dataset, Batched) else SomeModalities)(dataset, names)


def only_view(dataset: Dataset, view: str) -> Dataset:
    return only_modalities(dataset, (view,))


def _has(dataset: Dataset, view: str, row: int) -> bool:
    """Whether a sample has a view, as far as that is known without reading it."""
    while isinstance(dataset, Subset):
        row = int(dataset.rows[row])
        dataset = dataset.dataset
    return not isinstance(dataset, Paired) or view in dataset.paths(row)


class SomeModalities:
    """Some modalities of a data set, built by `only_modalities`."""

    def __init__(self, dataset: Dataset, names: tuple[str, ...]) -> None:
        self.dataset, self.modalities = dataset, names
        self.ids, self.labels, self.classes = dataset.ids, dataset.labels, dataset.classes
        self.threads = getattr(dataset, "threads", False)  # may be read by several at once

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        sample = self.dataset[index]
        return replace(
            sample, modalities={name: sample.modalities[name] for name in self.modalities if name in sample.modalities}
        )

    def name(self, index: int) -> str:
        return self.dataset.name(index)


class BatchedSomeModalities(SomeModalities):
    """Some modalities of a data set that makes many samples at once."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        made = cast(Batched, self.dataset).batch(index)
        return {name: made[name] for name in self.modalities}


def _split(
    data: str, split: str, options: dict[str, Any], train: Dataset
) -> tuple[Dataset, None] | tuple[None, str | None]:
    """A split to score on, or what is wrong with it; neither where there is none."""
    try:
        found = open_data(data, **{**options, "split": split})
    except (ValueError, OSError) as error:
        there_is_none = str(error).startswith("split: ")  # as in most folders
        return None, None if there_is_none else f"it cannot be opened: {error}"
    why = _useless(found, train)
    return (found, None) if why is None else (None, why)


def _labelled(dataset: Dataset) -> bool:
    """Whether kNN has something to tell apart."""
    return dataset.labels is not None and len(dataset.labels[dataset.labels >= 0].unique()) > 1


def _useless(test: Dataset, train: Dataset) -> str | None:
    """Why a test split cannot be scored on: it needs labels that training has too, and none of its images.

    The images are the same where a person learns from the test split itself, or from all splits of a folder.
    """
    assert train.labels is not None
    if test.labels is None or not _labelled(test):
        return "it has no labels, or one only"
    known = torch.isin(test.labels[test.labels >= 0], train.labels)
    if test.classes != train.classes or not bool(known.any()):
        return "it has other classes than the images to learn from"
    return "some of its images are learnt from" if bool(torch.isin(train.ids, test.ids).any()) else None


def _aside(dataset: Dataset, why: str | None) -> Divided:
    assert dataset.labels is not None
    labelled = (dataset.labels >= 0).nonzero()[:, 0]
    count = min(MOST, int(SHARE * len(labelled)))
    if not count:
        return Divided(dataset, None, why=why)
    chosen = torch.zeros(len(dataset), dtype=torch.bool)
    chosen[labelled[order(key(ASIDE, dataset.ids[labelled]))[:count]]] = True
    return Divided(subset(dataset, ~chosen), subset(dataset, chosen), aside=True, why=why)
