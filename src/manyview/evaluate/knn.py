"""The protocols of nearest neighbours: one k and temperature, or a sweep over both."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.evaluate.scores import on_features, tops
from manyview.evaluate.task import Score, Scores, Task
from manyview.features.knn import check_votes, knn_votes, neighbours, weighted_votes

KS = (1, 5, 10, 20, 50, 100, 200)
TRIED = 5000  # training images that a sweep chooses k and temperature with


def nearest(task: Task, *, k: int = 20, temperature: float = 0.1) -> Scores:
    """Top-1 and top-5 of weighted nearest neighbours, by cosine, among the training images."""
    check_votes(k, temperature, len(task.train))

    def score(bank: Tensor, labels: Tensor, queries: Tensor, right: Tensor) -> list[Score]:
        votes = knn_votes(bank, labels, queries, k=k, temperature=temperature)
        guesses = votes.masked_fill(votes == 0, -torch.inf)  # what nobody votes for is not guessed
        return tops(guesses, right, len(task.classes))

    return on_features(task, score)


def sweep(
    task: Task,
    *,
    ks: tuple[int, ...] | None = None,
    temperatures: tuple[float, ...] = (0.05, 0.07, 0.1, 0.2, 0.5),
) -> Scores:
    """Top-1 of nearest neighbours for every k and temperature, and which of them the training images choose.

    They choose by being asked about each other: of at most 5,000 of them, each is classified by the others. The first
    score, "top1", is that of the chosen k and temperature; the best of the others is one that the test labels chose.

    ks: without, those of 1, 5, 10, 20, 50, 100 and 200 that there are images for
    """
    _check_grid(ks, temperatures, len(task.train))

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
