"""The protocols of nearest neighbours: kNN with one k and temperature, or a sweep over both; and retrieval."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.evaluate.scores import on_features, tops
from manyview.evaluate.task import Score, Scores, Task
from manyview.features.knn import check_votes, knn_votes, neighbours, weighted_votes

KS = (1, 5, 10, 20, 50, 100, 200)
ENTRIES = 1 << 24  # similarities that retrieval holds at a time
SORTED = 1 << 21  # those that it sorts at a time, so that Ctrl-C is answered meanwhile
TRIED = 5000  # training images that a sweep chooses k and temperature with


def nearest(task: Task, *, k: int = 20, temperature: float = 0.1) -> Scores:
    """Top-1 and top-5 of weighted nearest neighbours, by cosine, among the training images."""
    check_votes(k, temperature, task.fewest("train"))

    def score(bank: Tensor, labels: Tensor, queries: Tensor, right: Tensor) -> list[Score]:
        votes = knn_votes(bank, labels, queries, k=k, temperature=temperature)
        guesses = votes.masked_fill(votes == 0, -torch.inf)  # what nobody votes for is not guessed
        return tops(guesses, right, len(task.classes))

    return on_features(task, score)


def sweep(
    task: Task, *, ks: tuple[int, ...] | None = None, temperatures: tuple[float, ...] = (0.05, 0.07, 0.1, 0.2, 0.5)
) -> Scores:
    """Top-1 of nearest neighbours for every k and temperature, and which of them the training images choose.

    They choose by being asked about each other: of at most 5,000 of them, each is classified by the others. The first
    score, "top1", is that of the chosen k and temperature; the best of the others is one that the test labels chose.

    ks: without, those of 1, 5, 10, 20, 50, 100 and 200 that there are images for
    """
    _check_grid(ks, temperatures, task.fewest("train"))

    def score(bank: Tensor, labels: Tensor, queries: Tensor, right: Tensor) -> list[Score]:
        tried = _check_grid(ks, temperatures, len(bank))  # some images may have been unreadable
        asked = order(key(task.seed, torch.arange(len(bank))))[:TRIED]
        near, rows = neighbours(bank, bank[asked], max(tried), own=asked)  # none votes for itself
        among = _grid(near, labels[rows], labels[asked], tried, temperatures)
        k, temperature = max(among, key=lambda each: among[each])
        near, rows = neighbours(bank, queries, max(tried))
        scores = _grid(near, labels[rows], right, tried, temperatures)
        best = ("top1", scores[k, temperature]), ("chosen k", float(k)), ("chosen temperature", temperature)
        return [*best, *((f"k={k} t={temperature:g}", score) for (k, temperature), score in scores.items())]

    return on_features(task, score)


def _grid(
    near: Tensor, voters: Tensor, right: Tensor, ks: tuple[int, ...], temperatures: tuple[float, ...]
) -> dict[tuple[int, float], float]:
    """The share of right predictions for each k and temperature, from the labels (n, k) of the nearest."""
    classes, found = int(max(voters.max(), right.max())) + 1, {}
    for k in ks:
        for temperature in temperatures:
            predicted = weighted_votes(near[:, :k], voters[:, :k], temperature, classes).argmax(1)
            found[k, temperature] = float((predicted == right).double().mean())
    return found


def _check_grid(ks: tuple[int, ...] | None, temperatures: tuple[float, ...], count: int) -> tuple[int, ...]:
    """The numbers of neighbours that are tried among so many images."""
    ks = tuple(k for k in KS if k < count) if ks is None else ks
    if not ks or not 1 <= min(ks) <= max(ks) < count:
        raise UserError(
            "ks", f"expected numbers from 1 to {count - 1}, one less than training images, got {ks or 'none'}"
        )
    if not temperatures or not min(temperatures) > 0:
        raise UserError("temperatures", f"expected positive numbers, got {temperatures or 'none'}")
    return ks


def retrieval(task: Task, *, ks: tuple[int, ...] = (1, 5, 10)) -> Scores:
    """Recall@k and mean average precision of test images among the training images, by cosine.

    ks  recall@k is the share of queries that have an image of their class among the k nearest
    """
    _check(ks, task.fewest("train"))
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
        near = F.normalize(queries[rows], dim=1) @ bank.T
        pieces = near.split(max(1, SORTED // len(bank)))
        ranked = torch.cat([each.argsort(1, descending=True) for each in pieces])
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
