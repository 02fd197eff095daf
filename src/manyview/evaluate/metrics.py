"""What classifiers are scored by: accuracy, its mean over classes, area under the ROC curve, and VOC's precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

POINTS = 11  # of recall at which VOC 2007 reads the precision


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """The share of right first guesses of logits (n, classes) for labels (n,)."""
    return float((logits.argmax(1) == labels).double().mean())


def mean_per_class(logits: Tensor, labels: Tensor) -> float:
    """The accuracy of each class that there is, averaged: scikit-learn's `balanced_accuracy_score`."""
    right = (logits.argmax(1) == labels).double()
    return float(torch.stack([right[labels == each].mean() for each in labels.unique()]).mean())


def roc_auc(logits: Tensor, labels: Tensor) -> float:
    """The chance that an image of class 1 has a higher score than one of class 0, ties counting half.

    logits (n, 2), labels (n,) of 0 and 1. It is the area under the ROC curve, scikit-learn's `roc_auc_score`; 0.5 where
    one class alone is there.
    """
    scores = (logits[:, 1] - logits[:, 0]).double()
    ones, zeros = scores[labels == 1], scores[labels == 0].sort().values
    if not len(ones) or not len(zeros):
        return 0.5
    below, up_to = (torch.searchsorted(zeros, ones, right=right) for right in (False, True))
    return float((below + up_to).double().mean() / (2 * len(zeros)))


def map_11(logits: Tensor, sets: Tensor) -> float:
    """VOC 2007's mean average precision: each class's precision at recalls 0, 0.1, ..., 1, averaged over all of them.

    The precision at a recall is the highest of all that have this recall or more (Everingham et al., IJCV 2010). Images
    of the same score come together. Classes that no image shows are left out. ELEVATER's toolkit differs in two things:
    it takes 1 for the precision at recall 0, and it scores a softmax over the classes, which ranks images otherwise.

    logits (n, classes); sets (n, classes): 1 is there, 0 is not, -1 is not to be counted.
    """
    columns = [(logits[:, each], sets[:, each]) for each in range(sets.shape[1]) if (sets[:, each] == 1).any()]
    found = [average_precision_11(scores[there >= 0], there[there >= 0] == 1) for scores, there in columns]
    return sum(found) / len(found) if found else 0.0


def average_precision_11(scores: Tensor, positive: Tensor) -> float:
    """The mean of the interpolated precision of one class at eleven recalls; scores (n,), positive (n,) bool."""
    ordered, rows = scores.sort(descending=True)
    hits = positive[rows].double().cumsum(0)
    last = torch.cat([ordered[1:] != ordered[:-1], torch.ones(1, dtype=torch.bool)])  # of those with the same score
    precision = (hits / torch.arange(1, len(hits) + 1))[last]
    recall = (hits / hits[-1])[last]
    best = precision.flip(0).cummax(0).values.flip(0)  # of this recall or more
    at = torch.searchsorted(recall, torch.arange(POINTS).double() / (POINTS - 1) - 1e-9)
    return float(best[at].mean())


METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": accuracy,
    "mean-per-class": mean_per_class,
    "roc-auc": roc_auc,
    "11-point-map": map_11,
}
"""(logits, labels) -> a share from 0 to 1."""
