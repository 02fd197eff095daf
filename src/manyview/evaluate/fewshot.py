"""Few labels: a classifier from n images of each class, drawn several times."""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.evaluate.logistic import ROUGHLY, Scaling, check, fit, logits
from manyview.evaluate.scores import on_features
from manyview.evaluate.task import Score, Scores, Task

CS = (1e-3, 1e-2, 0.1, 1.0)
ALONE = 0.1  # C of one image a class, with which nothing can be tried out
DRAW = 0xF0  # keeps these draws apart from others with the same seed
FOLDS = 5


def fewshot(task: Task, *, shots: tuple[int, ...] = (1, 5, 10), draws: Count = 5, cs: tuple[float, ...] = CS) -> Scores:
    """Top-1 of logistic regression on n labelled images of each class: mean and std over several draws.

    Every draw chooses its C by cross-validation among its own images; one image a class takes C = 0.1. Features are
    standardised by the training images, without their labels. All encoders get the same draws.

    shots  images a class
    draws  how many times
    cs     candidates for C
    """
    task.check()
    assert task.train.labels is not None
    _check_shots(shots, task.train.labels)
    check(cs)

    def score(x: Tensor, labels: Tensor, test: Tensor, right: Tensor) -> Scores:
        _check_shots(shots, labels)  # some images may have been unreadable
        scaling = Scaling.of(x)
        x, test = scaling(x), scaling(test)
        with task.progress(len(shots) * draws, "few shots") as advance:
            for n in shots:
                found = []
                for draw in range(draws):
                    rows = drawn(labels, n, task.seed, draw)
                    found.append(_right(x[rows], labels[rows], test, right, n, cs))
                    advance()
                yield from _summary(n, found)

    return on_features(task, score)


def drawn(labels: Tensor, n: int, seed: int, draw: int) -> Tensor:
    """Rows of n samples of each class, ordered so that every k-th of a class comes before its (k + 1)-th."""
    shuffled = order(key(DRAW, seed, draw, torch.arange(len(labels))))
    of_class = [shuffled[labels[shuffled] == each][:n] for each in labels.unique()]
    return torch.stack(of_class, 1).flatten()


def _right(x: Tensor, labels: Tensor, test: Tensor, right: Tensor, n: int, cs: tuple[float, ...]) -> float:
    classes = int(labels.max()) + 1
    C = ALONE if n == 1 else max(sorted(cs), key=lambda each: _validated(x, labels, classes, n, each))
    predicted = logits(fit(x, labels, classes, C), test).argmax(1)
    return float((predicted == right).double().mean())


def _validated(x: Tensor, labels: Tensor, classes: int, n: int, C: float) -> int:
    """How many are right, each asked of a fit without its fold; a fold has as many of each class."""
    folds = min(n, FOLDS)
    fold = torch.arange(len(x)) // (len(x) // n) % folds
    total = 0
    for number in range(folds):
        out = fold == number
        predicted = logits(fit(x[~out], labels[~out], classes, C, done=ROUGHLY), x[out]).argmax(1)
        total += int((predicted == labels[out]).sum())
    return total


def _summary(n: int, found: list[float]) -> list[Score]:
    std = statistics.stdev(found) if len(found) > 1 else 0.0
    return [(f"{n}-shot", statistics.fmean(found)), (f"{n}-shot std", std)]


def _check_shots(shots: tuple[int, ...], labels: Tensor) -> None:
    least = int(labels.unique(return_counts=True)[1].min())
    if not shots or not 1 <= min(shots) <= max(shots) <= least:
        raise UserError(
            "shots", f"expected numbers from 1 to {least}, the images of the smallest class, got {shots or 'none'}"
        )
