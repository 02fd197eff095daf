"""Label imbalance: thins out a data set so that some classes are rare."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data.dataset import Dataset
from manyview.data.selection import subset

Rule = Literal["linear", "exponential"]

RULES: dict[str, Callable[[int, int], float]] = {  # the share that step 1 .. steps keeps
    "linear": lambda step, steps: step / steps,
    "exponential": lambda step, steps: math.exp(step - steps),
}


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
    keys = key(seed, dataset.ids)
    kept = [_smallest(keys, (labels == label).nonzero()[:, 0], share) for label, share in enumerate(shares)]
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


def _smallest(keys: Tensor, rows: Tensor, share: float) -> Tensor:
    """The rows with the smallest keys, a share of them."""
    count = math.floor(share * len(rows) + 1e-9)  # 0.3 of 10 is 3, though 0.3 * 10 may be less in floats
    return rows[order(keys[rows])[:count]]
