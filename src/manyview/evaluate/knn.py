"""Weighted nearest neighbours: how good an embedding is before anything is trained on top of it."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.evaluate.scores import on_features, tops
from manyview.evaluate.task import Score, Scores, Task
from manyview.features.neighbours import neighbours

KS = (1, 5, 10, 20, 50, 100, 200)
TRIED = 5000  # training images that a sweep chooses k and temperature with


def knn(
    bank: Tensor,
    bank_labels: Tensor,
    queries: Tensor,
    query_labels: Tensor,
    *,
    k: int = 20,
    temperature: float = 0.1,
) -> float:
    """The share of queries (n, d) whose class the k nearest of the bank (m, d) vote for, as `knn_votes` counts them.

    >>> knn(*features(encoder, train), *features(encoder, test))
    """
    _check_labels("query_labels", query_labels, queries)
    predicted = knn_predict(bank, bank_labels, queries, k=k, temperature=temperature)
    return float((predicted == query_labels.to(predicted.device)).double().mean())


def knn_predict(bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int = 20, temperature: float = 0.1) -> Tensor:
    """(n,) the class with most of the votes."""
    return knn_votes(bank, bank_labels, queries, k=k, temperature=temperature).argmax(1)


@torch.no_grad()
def knn_votes(bank: Tensor, bank_labels: Tensor, queries: Tensor, *, k: int = 20, temperature: float = 0.1) -> Tensor:
    """(n, classes) each class's share of the votes of the k bank vectors nearest by cosine.

    A neighbour votes for its class with weight exp(cosine / temperature) (Wu et al., CVPR 2018, section 3.4). Exact,
    and in pieces: beside the inputs it takes about 150 MB, however many they are.
    """
    _check(bank, bank_labels, queries, k, temperature)
    _check_labels("bank_labels", bank_labels, bank)
    near, rows = neighbours(bank, queries, k)
    return _votes(near, bank_labels.to(rows.device)[rows], temperature, int(bank_labels.max()) + 1)


def nearest(task: Task, *, k: int = 20, temperature: float = 0.1) -> Scores:
    """Top-1 and top-5 of weighted nearest neighbours, by cosine, among the training images."""
    _check_votes(k, temperature, len(task.train))

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
            predicted = _votes(near[:, :k], voters[:, :k], temperature, classes).argmax(1)
            found[k, temperature] = float((predicted == right).double().mean())
    return found


def _votes(near: Tensor, voters: Tensor, temperature: float, classes: int) -> Tensor:
    weights = (near / temperature).softmax(1)  # shares, so that no temperature is too low for exp
    return weights.new_zeros(len(near), classes).scatter_add_(1, voters, weights)


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


def _check(bank: Tensor, bank_labels: Tensor, queries: Tensor, k: int, temperature: float) -> None:
    if bank.dim() != 2 or queries.dim() != 2 or bank.shape[1] != queries.shape[1] or not len(queries):
        got = f"{tuple(bank.shape)} and {tuple(queries.shape)}"
        raise UserError("bank and queries", f"expected (m, d) and (n, d) with n >= 1, got {got}")
    _check_votes(k, temperature, len(bank))
    for name, vectors in (("bank", bank), ("queries", queries)):
        if not torch.isfinite(vectors.sum(dtype=torch.float64)):  # a sum of half precision soon is not finite
            raise UserError(name, "holds NaN or infinite numbers; the encoder that made it has diverged")
    if len(bank_labels) == len(bank) and len(bank_labels.unique()) == 1 and int(bank_labels[0]) >= 0:
        raise UserError("bank_labels", f"all are of class {int(bank_labels[0])}; neighbours need two classes or more")


def _check_votes(k: int, temperature: float, count: int) -> None:
    if not 1 <= k <= count:
        remedy = "give a smaller k or more data" if k > count else "give a larger k"
        raise UserError("k", f"expected 1 to the {count} vectors of the bank, got {k}; {remedy}")
    if not temperature > 0:
        raise UserError("temperature", f"expected a positive number, got {temperature}")


def _check_labels(name: str, labels: Tensor, vectors: Tensor) -> None:
    if labels.shape != (len(vectors),) or labels.dtype != torch.long:
        raise UserError(name, f"expected int64 ({len(vectors)},), got {labels.dtype} {tuple(labels.shape)}")
    missing = int((labels < 0).sum())
    if missing:
        raise UserError(name, f"{missing} of {len(labels)} have no label (-1); leave them out, or name another set")
