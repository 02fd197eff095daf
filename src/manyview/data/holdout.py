"""Images that are not trained on, so that the encoder can be scored on them: a test split, or some held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data.dataset import Dataset
from manyview.data.factory import open_data
from manyview.data.imbalance import imbalanced
from manyview.data.selection import subset

HELD_OUT_SHARE, MAX_HELD_OUT = 0.1, 1000  # of the images, and how many at most, where there is no test split
HOLDOUT = 0x5C0DE  # keeps this draw apart from others with the same seed


@dataclass(frozen=True, eq=False)
class Divided:
    """Training images, and labelled images to score on.

    test         None where there are no labels
    held_out     whether those were held out of the training images, and are no test split
    test_unused  why the test split is not used, where there is one
    """

    train: Dataset
    test: Dataset | None
    held_out: bool = False
    test_unused: str | None = None


def divided(data: Dataset | str, *, imbalance: Any = None, **options: Any) -> Divided:
    """Divides data into training images and its test split; without one, a tenth of the labelled images is held out.

    So it is where the test split is of no use, which `test_unused` then says. At most `MAX_HELD_OUT` are held out.
    `options` are those of `open_data`. Which images are held out depends on their ids alone.
    """
    train = open_data(data, **options) if isinstance(data, str) else data
    train = train if imbalance is None else imbalanced(train, imbalance)
    if not _labelled(train):
        return Divided(train, None)
    if not isinstance(data, str):
        return _hold_out(train, None)
    reasons = []
    for split in ("test", "val"):  # a test split may be published without its labels
        test, unused = _split(data, split, options, train)
        if test is not None:
            return Divided(train, test)
        reasons.append(unused)
    return _hold_out(train, next(filter(None, reasons), None))


def some(dataset: Dataset, count: int) -> Dataset:
    """Chooses at most `count` labelled samples by their ids alone."""
    assert dataset.labels is not None
    labelled = (dataset.labels >= 0).nonzero()[:, 0]
    chosen = labelled[order(key(HOLDOUT, dataset.ids[labelled]))[:count]]
    return dataset if len(chosen) == len(dataset) else subset(dataset, chosen.sort().values)


def _split(
    data: str, split: str, options: dict[str, Any], train: Dataset
) -> tuple[Dataset, None] | tuple[None, str | None]:
    """Opens a split to score on, or says what is wrong with it; neither where there is none."""
    try:
        found = open_data(data, **{**options, "split": split})
    except (ValueError, OSError) as error:
        there_is_none = isinstance(error, UserError) and error.setting == "split"  # as in most folders
        return None, None if there_is_none else f"it cannot be opened: {error}"
    useless = _useless(found, train)
    return (found, None) if useless is None else (None, useless)


def _labelled(dataset: Dataset) -> bool:
    """Tells whether there are at least two classes to tell apart."""
    return dataset.labels is not None and len(dataset.labels[dataset.labels >= 0].unique()) > 1


def _useless(test: Dataset, train: Dataset) -> str | None:
    """Says why a test split cannot be scored on: it needs labels that training has too, and none of its images.

    The images are the same where a person trains on the test split itself, or from all splits of a folder.
    """
    assert train.labels is not None
    if test.labels is None or not _labelled(test):
        return "it has no labels, or one only"
    known = torch.isin(test.labels[test.labels >= 0], train.labels)
    if test.classes != train.classes or not bool(known.any()):
        return "it has other classes than the training images"
    return "some of its images are training images" if bool(torch.isin(train.ids, test.ids).any()) else None


def _hold_out(dataset: Dataset, test_unused: str | None) -> Divided:
    assert dataset.labels is not None
    labelled = (dataset.labels >= 0).nonzero()[:, 0]
    count = min(MAX_HELD_OUT, int(HELD_OUT_SHARE * len(labelled)))
    if not count:
        return Divided(dataset, None, test_unused=test_unused)
    chosen = torch.zeros(len(dataset), dtype=torch.bool)
    chosen[labelled[order(key(HOLDOUT, dataset.ids[labelled]))[:count]]] = True
    return Divided(subset(dataset, ~chosen), subset(dataset, chosen), held_out=True, test_unused=test_unused)
