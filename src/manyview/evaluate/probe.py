"""A classifier on frozen features: nothing but the classifier learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from manyview.core.rng import key, order
from manyview.data.loader import SHUFFLE
from manyview.evaluate.backbone import Looking, check_unmoved, chosen_layer, features, frozen, looks
from manyview.evaluate.classifier import Batches, Recipe, fit, named, seeded
from manyview.evaluate.task import Score, Scores, Task

Head = Callable[[int, int], nn.Module]
"""(features, classes) -> the classifier"""

TEST = 4096  # features scored at a time


def probe(task: Task, head: Head, recipe: Recipe, *, augment: bool, layer: str | None, norm: bool, text: str) -> Scores:
    """The scores of a classifier on frozen features, for every part of the subject.

    augment  crop and flip anew each epoch; False learns from features that are computed once
    layer    of the encoder, which the classifier sits on; None for the recipe's
    norm     a batch norm without weights in front
    """
    task.check()
    layer = chosen_layer(task.subject, layer, recipe.layer)
    return _probe(task, head, recipe, augment, layer, norm, text)


def _probe(task: Task, head: Head, recipe: Recipe, augment: bool, layer: str | None, norm: bool, text: str) -> Scores:
    for part in task.parts:
        eyes = frozen(task, part, layer)
        scores = _probed(task, part, eyes, head, recipe, augment, norm, text)
        check_unmoved(eyes, task, part)
        yield from named(part, scores)


def _probed(
    task: Task, part: str, eyes: Looking, head: Head, recipe: Recipe, augment: bool, norm: bool, text: str
) -> list[Score]:
    test, labels = features(task, "test", part, eyes.layer)
    if augment:
        train = looks(task, recipe.batch_size, torch.no_grad()(eyes), drop_last=norm)
    else:
        train = _shuffled(task, *features(task, "train", part, eyes.layer), recipe.batch_size, drop_last=norm)
    dim = test.shape[1]
    model = seeded(lambda: _normed(head(dim, len(task.classes)), dim, norm), task.seed).to(task.device)
    called = [text, part, eyes.layer, augment, str(model)]
    return fit(model, [(model, recipe.lr)], recipe, train, _in_order(task, test, labels), task, called)


def _normed(head: nn.Module, dim: int, norm: bool) -> nn.Module:
    if not norm:
        return head
    # what is frozen has the same statistics all the time, so those of all batches count alike
    return nn.Sequential(nn.BatchNorm1d(dim, eps=1e-6, momentum=None, affine=False), head)


def _shuffled(task: Task, found: Tensor, labels: Tensor, batch_size: int, *, drop_last: bool) -> Batches:
    """The same features each epoch, in another order."""
    size = min(batch_size, len(found))
    count = len(found) // size if drop_last else math.ceil(len(found) / size)

    def epoch(number: int) -> Iterator[tuple[Tensor, Tensor]]:
        ordered = order(key(SHUFFLE, task.seed, number, torch.arange(len(found))))
        for rows in ordered.split(size)[:count]:
            yield found[rows].to(task.device), labels[rows].to(task.device)

    return Batches(count, epoch)


def _in_order(task: Task, found: Tensor, labels: Tensor) -> Batches:
    def epoch(number: int) -> Iterator[tuple[Tensor, Tensor]]:
        for x, known in zip(found.split(TEST), labels.split(TEST), strict=True):
            yield x.to(task.device), known.to(task.device)

    return Batches(math.ceil(len(found) / TEST), epoch)
