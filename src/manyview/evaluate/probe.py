"""A probe: a classifier on frozen features, and nothing but the classifier is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from manyview.core.rng import key, order
from manyview.data.loader import SHUFFLE
from manyview.evaluate.backbone import (
    augmented_batches,
    check_unchanged,
    choose_layer,
    frozen_backbone,
    layer_features,
)
from manyview.evaluate.classifier import Batches, ClassifierRecipe, fit, seeded
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Score, Scores, Task

Head = Callable[[int, int], nn.Module]
"""(features, classes) -> the classifier"""

TEST = 4096  # features scored at a time


def probe(
    task: Task, head: Head, recipe: ClassifierRecipe, *, augment: bool, layer: str | None, norm: bool, text: str
) -> Scores:
    """The scores of a classifier on frozen features, for every part of the model.

    augment  crop and flip anew each epoch; False trains on features that are computed once
    layer    of the encoder, which the classifier sits on; None for the recipe's
    norm     a batch norm without weights in front
    """
    layer = choose_layer(task.model, layer, recipe.layer)

    def score(part: str) -> list[Score]:
        backbone = frozen_backbone(task, part, layer)
        test, labels = layer_features(task, "test", part, layer)
        if augment:
            train = augmented_batches(task, recipe.batch_size, torch.no_grad()(backbone), drop_last=norm)
        else:
            train = _shuffled(task, *layer_features(task, "train", part, layer), recipe.batch_size, drop_last=norm)
        dim = test.shape[1]
        classifier = seeded(lambda: _normed(head(dim, len(task.classes)), dim, norm), task.seed).to(task.device)
        identity = [text, part, layer, augment, str(classifier)]
        learning = [(classifier, recipe.lr)]
        scores = fit(classifier, learning, recipe, train, _in_order(task, test, labels), task, identity)
        check_unchanged(backbone, task, part)
        return scores

    return by_part(task, score)


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
