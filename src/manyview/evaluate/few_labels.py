"""Few labels: n images of each class, drawn several times, or 1% and 10% of all."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import Above, AtMost, Count, OptionalCount, OptionalPositive
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data import Dataset, subset
from manyview.evaluate.finetune import finetune
from manyview.evaluate.kept_scores import KeptScores
from manyview.evaluate.linear_fast import check
from manyview.evaluate.probe import linear
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Scores, Task
from manyview.features.logistic import ROUGHLY, Scaling, fit, logits, minimise

CS = (1e-3, 1e-2, 0.1, 1.0)
ALONE = 0.1  # C of one image a class, with which nothing can be tried out
DRAW = 0xF0  # keeps these draws apart from others with the same seed
FOLDS = 5
AT_ONCE = 1 << 14  # features x classes up to which fits without one fold each are done at once; larger ones one by one
LITTLE = 0.03  # shares up to this are nearer to SwAV's 1% than to its 10%
FEW = 0xFE3  # keeps this draw apart from others with the same seed
PROTOCOLS: dict[str, Callable[..., Scores]] = {"finetune": finetune, "linear": linear}


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

    def score(part: str) -> Scores:
        (x, labels), (test, right) = task.features("train", part), task.features("test", part)
        _check_shots(shots, labels)  # some images may have been unreadable
        scaling = Scaling.of(x)
        x, test = scaling(x), scaling(test)
        kept = KeptScores(task, ["fewshot", part, cs])

        def share(n: int, draw: int) -> list[float]:
            rows = drawn(labels, n, task.seed, draw)
            weights = fitted(x[rows], labels[rows], n, cs)
            return [float((logits(weights, test).argmax(1) == right).double().mean())]

        with task.progress(len(shots) * draws, "few shots") as advance:
            for n in shots:
                found = []
                for draw in range(draws):
                    found += kept.of(f"{n} {draw}", partial(share, n, draw))
                    advance()
                yield f"{n}-shot", statistics.fmean(found)
                yield f"{n}-shot std", statistics.stdev(found) if draws > 1 else 0.0

    return by_part(task, score)


def drawn(labels: Tensor, n: int, seed: int, draw: int) -> Tensor:
    """Rows of n samples of each class, ordered so that every k-th of a class comes before its (k + 1)-th."""
    shuffled = order(key(DRAW, seed, draw, torch.arange(len(labels))))
    of_class = [shuffled[labels[shuffled] == each][:n] for each in labels.unique()]
    return torch.stack(of_class, 1).flatten()


def fitted(x: Tensor, labels: Tensor, n: int, cs: tuple[float, ...]) -> Tensor:
    """Weights (d + 1, classes) for the C with which most are right, each asked of a fit without its fold.

    The weights of a penalised fit are sums of images, so that with far fewer images than features it is done in their
    span, which changes nothing but the time.
    """
    span = torch.linalg.qr(x.T).Q if 2 * len(x) <= x.shape[1] else None  # (d, m)
    inner = x if span is None else x @ span
    weights = _chosen(inner, labels, n, cs)
    return weights if span is None else torch.cat([span @ weights[:-1], weights[-1:]])


def _chosen(x: Tensor, labels: Tensor, n: int, cs: tuple[float, ...]) -> Tensor:
    classes, folds = int(labels.max()) + 1, min(n, FOLDS)
    fold = torch.arange(len(x)) // (len(x) // n) % folds

    def right(C: float) -> int:
        return int((fold_logits(x, labels, classes, C, fold, folds).argmax(1) == labels).sum())

    return fit(x, labels, classes, ALONE if n == 1 else max(sorted(cs), key=right))


def fold_logits(x: Tensor, labels: Tensor, classes: int, C: float, fold: Tensor, folds: int) -> Tensor:
    """(m, classes): what is said of each image by a fit without its fold."""
    if x.shape[1] * classes <= AT_ONCE:
        return _all_folds(x, labels, classes, C, fold, folds)[fold, torch.arange(len(x))]
    found = x.new_empty(len(x), classes)
    for number in range(folds):
        out = fold == number
        found[out] = logits(fit(x[~out], labels[~out], classes, C, done=ROUGHLY), x[out])
    return found


def _all_folds(x: Tensor, labels: Tensor, classes: int, C: float, fold: Tensor, folds: int) -> Tensor:
    """(folds, m, classes) of as many fits, each without one fold, all at once."""
    used = (fold != torch.arange(folds)[:, None]).to(x)  # (folds, m)
    counts, every = used.sum(1), labels.repeat(folds)

    def scores(weights: Tensor) -> Tensor:
        return x @ weights[:, :-1] + weights[:, -1:]

    def loss(weights: Tensor) -> Tensor:
        wrong = F.cross_entropy(scores(weights).flatten(0, 1), every, reduction="none").view_as(used)
        penalty = weights[:, :-1].square().sum((1, 2)) / (2 * C * counts)
        return ((wrong * used).sum(1) / counts + penalty).sum()

    return scores(minimise(loss, x.new_zeros(folds, x.shape[1] + 1, classes), done=ROUGHLY))


def _check_shots(shots: tuple[int, ...], labels: Tensor) -> None:
    least = int(labels.unique(return_counts=True)[1].min())
    if not shots or not 1 <= min(shots) <= max(shots) <= least:
        raise UserError(
            "shots", f"expected numbers from 1 to {least}, the images of the smallest class, got {shots or 'none'}"
        )


def semi(
    task: Task,
    *,
    fractions: Annotated[tuple[float, ...], Above(0), AtMost(1)] = (0.01, 0.1),
    mode: Literal["finetune", "linear"] = "finetune",
    recipe: str | None = None,
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    lr_head: OptionalPositive = None,
    batch_size: OptionalCount = None,
) -> Scores:
    """The scores of `finetune` or of `linear` with a share of the training labels: "1% top1", "10% top1".

    recipe                           of that protocol; if None its usual one, when fine-tuning SwAV's for 1% or for 10%
                                     of the labels, whichever is nearer
    epochs, lr, lr_head, batch_size  instead of the recipe's; lr_head is the classifier's, when fine-tuning
    """
    if lr_head is not None and mode == "linear":
        raise UserError("lr_head", f"is for mode 'finetune', where the encoder is trained too; give lr, got {lr_head}")
    if not fractions:
        raise UserError("fractions", "expected shares above 0 and up to 1, got none")
    task.check()
    settings: dict[float, dict[str, Any]] = {}
    for fraction in fractions:
        usual = "moco" if mode == "linear" else "swav-1" if fraction <= LITTLE else "swav-10"
        own = {"lr_head": lr_head} if mode == "finetune" else {}
        given = {"recipe": recipe or usual, "epochs": epochs, "lr": lr, "batch_size": batch_size}
        settings[fraction] = {**given, **own}
        PROTOCOLS[mode](task, **settings[fraction])  # which refuses what is wrong, and does nothing yet

    def scores() -> Scores:
        for fraction, each in settings.items():
            few = replace(task, train=some_of_each_class(task.train, fraction, task.seed))
            for name, value in PROTOCOLS[mode](few, **each):
                yield f"{100 * fraction:g}% {name}", value

    return scores()


def some_of_each_class(dataset: Dataset, fraction: float, seed: int) -> Dataset:
    """A share of each class, rounded, and at least one sample of it.

    Which ones depends on the seed and the ids alone, and a smaller share is a part of a larger one.
    """
    assert dataset.labels is not None
    keys, kept = key(FEW, seed, dataset.ids), []
    for label in dataset.labels.unique():
        rows = (dataset.labels == label).nonzero()[:, 0]
        kept.append(rows[order(keys[rows])[: max(1, round(fraction * len(rows)))]])
    return subset(dataset, torch.cat(kept).sort().values)
