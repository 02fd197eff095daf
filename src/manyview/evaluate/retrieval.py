"""Retrieval: whether the images most like a test image show the same class."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.evaluate.scores import on_features
from manyview.evaluate.task import Score, Scores, Task

ENTRIES = 1 << 24  # similarities that are sorted at a time


def retrieval(task: Task, *, ks: tuple[int, ...] = (1, 5, 10)) -> Scores:
    """Recall@k and mean average precision of test images among the training images, by cosine.

    ks  recall@k is the share of queries that have an image of their class among the k nearest
    """
    _check(ks, len(task.train))
    return on_features(task, partial(score_retrieval, ks=ks))


@torch.no_grad()
def score_retrieval(bank: Tensor, labels: Tensor, queries: Tensor, right: Tensor, ks: tuple[int, ...]) -> list[Score]:
    """The scores of queries (n, d) in a bank (m, d) with labels (m,).

    A class that the bank has not counts as never found. In pieces of queries: beside the inputs it takes a few times
    `ENTRIES` numbers.
    """
    _check(ks, len(bank))  # some images may have been unreadable
    bank = F.normalize(bank, dim=1)
    hits, precision = torch.zeros(len(ks), dtype=torch.float64), 0.0
    for start in range(0, len(queries), max(1, ENTRIES // len(bank))):
        rows = slice(start, start + max(1, ENTRIES // len(bank)))
        ranked = (F.normalize(queries[rows], dim=1) @ bank.T).argsort(1, descending=True)
        same = labels[ranked] == right[rows, None]  # (n, m), the nearest first
        hits += torch.stack([same[:, :k].any(1).sum() for k in ks])
        precision += float(average_precision(same).sum())
    recall = [(f"recall@{k}", float(hit) / len(queries)) for k, hit in zip(ks, hits, strict=True)]
    return [*recall, ("mAP", precision / len(queries))]


def average_precision(same: Tensor) -> Tensor:
    """(n,) the mean, over the places of what is sought, of the share of it up to there; 0 where there is none."""
    found = same.double().cumsum(1)
    shares = found / torch.arange(1, same.shape[1] + 1)
    return (shares * same).sum(1) / found[:, -1].clamp(min=1)


def _check(ks: tuple[int, ...], count: int) -> None:
    if not ks or not 1 <= min(ks) <= max(ks) <= count:
        raise UserError("ks", f"expected numbers from 1 to the {count} training images, got {ks or 'none'}")
