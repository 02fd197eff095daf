"""Probes: classifiers on frozen features, linear or with a hidden layer, trained as each of the papers does it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyview.core.bounds import Count, OptionalCount, OptionalPositive
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data.loader import SHUFFLE
from manyview.evaluate.backbone import (
    ViewBackbone,
    augmented_batches,
    check_unchanged,
    choose_layer,
    layer_features,
    plain_test_batches,
    trainable_backbone,
    view_of,
)
from manyview.evaluate.classifier import Batches, choose_recipe, fit, linear_head, seeded
from manyview.evaluate.probe_recipes import MLP, RECIPES, ProbeRecipe
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Score, Scores, Task

Head = Callable[[int, int], nn.Module]
"""(features, classes) -> the classifier"""

TEST = 4096  # features scored at a time
HEADS: dict[str, Head] = {"normal": linear_head, "torch": nn.Linear}
"""Linear classifiers by the name of their first weights, `ProbeRecipe.initial`."""


def linear(
    task: Task,
    *,
    recipe: str = "moco",
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    batch_size: OptionalCount = None,
    augment: bool = True,
    layer: str | None = None,
    norm: bool = False,
) -> Scores:
    """Top-1 and top-5 of a linear classifier, after the last epoch and after the best.

    The best epoch is one that the test labels chose; the last is the number to compare. A learning rate fits the
    features of one network: MoCo's 30 is for ResNet-50. On those of a patchnet after 5 epochs on CIFAR-10 it ended with
    44% where "cacr-small" had 53% and "moco-v3" 52% (one run each, 2,000 test images, no augmentation); moco-v3 issue
    20 tells of the same.

    recipe                  a name of `RECIPES`; "cacr-small" is the text of CACR's appendix C.1, "cacr-small-cifar" and
                            "cacr-small-stl" its released code
    epochs, lr, batch_size  instead of the recipe's; its steps move along with the epochs
    augment                 crop and flip anew each epoch, or as the recipe says, as the papers do; False trains on
                            features that are computed once, so that a hundred epochs cost little more than one
    layer                   of the encoder, instead of the recipe's; a map is averaged to at most 9,600 numbers
    norm                    a batch norm without weights in front of the classifier, for features of any scale: learning
                            rates then mean the same for all encoders (moco-v3 issue 20, CMC issue 18)
    """
    numbers = choose_recipe(RECIPES, recipe, epochs=epochs, lr=lr, batch_size=batch_size)
    assert isinstance(numbers, ProbeRecipe)
    return probe(task, HEADS[numbers.initial], numbers, augment=augment, layer=layer, norm=norm, text="linear")


def mlp(
    task: Task,
    *,
    hidden: Count = 200,
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    batch_size: OptionalCount = None,
    augment: bool = True,
    layer: str | None = None,
    norm: bool = False,
) -> Scores:
    """Top-1 and top-5 of a classifier with a hidden layer of 200 units (CMC, Table 7), as `linear` gives them.

    CMC puts it on the conv5 and the fc7 of an AlexNet; here it sits on the embedding, or on a `layer`. Of batch norm
    or dropout inside the classifier the paper says nothing, and there is none. The other arguments are `linear`'s.
    """
    recipe = MLP.with_numbers(epochs=epochs, lr=lr, batch_size=batch_size)
    assert isinstance(recipe, ProbeRecipe)
    return probe(task, partial(mlp_head, hidden=hidden), recipe, augment=augment, layer=layer, norm=norm, text="mlp")


def mlp_head(features: int, classes: int, *, hidden: int = 200) -> nn.Module:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))


def probe(
    task: Task, head: Head, recipe: ProbeRecipe, *, augment: bool, layer: str | None, norm: bool, text: str
) -> Scores:
    """The scores of a classifier on frozen features, for every part of the model.

    augment  augment as the recipe says, anew each epoch; False trains on features that are computed once
    layer    of the encoder, which the classifier sits on; None for the recipe's
    norm     a batch norm without weights in front
    """
    layer = choose_layer(task.model, layer, recipe.layer)
    if recipe.train_mode and not augment:
        raise UserError("augment", "this recipe has the encoder in training mode, which needs pictures; leave it out")
    task = task.with_margin(recipe.margin)

    def score(part: str) -> list[Score]:
        backbone = trainable_backbone(task, part, layer).eval().requires_grad_(False)
        dim = layer_features(task, "test", part, layer)[0].shape[1]
        classifier = seeded(lambda: head(dim, len(task.classes)), task.seed)
        if norm:  # what is frozen has the same statistics all the time, so those of all batches count alike
            classifier = nn.Sequential(nn.BatchNorm1d(dim, eps=1e-6, momentum=None, affine=False), classifier)
        classifier.to(task.device)
        identity = [text, part, layer, augment, str(classifier)]
        learning = [(classifier, recipe.lr)]
        if recipe.train_mode:  # a copy of the encoder, whose weights stay and whose buffers move
            network, test = nn.Sequential(backbone, classifier), plain_test_batches(task, part)
            return fit(network, learning, recipe, _pictures(task, part, recipe, norm), test, task, identity)
        train = (
            _augmented_features(task, part, backbone, recipe, norm)
            if augment
            else _shuffled(task, *layer_features(task, "train", part, layer), recipe.batch_size, drop_last=norm)
        )
        test = _in_order(task, *layer_features(task, "test", part, layer))
        scores = fit(classifier, learning, recipe, train, test, task, identity)
        check_unchanged(backbone, task, part)
        return scores

    return by_part(task, score)


def _augmented_features(task: Task, part: str, backbone: ViewBackbone, recipe: ProbeRecipe, norm: bool) -> Batches:
    """Gives what the frozen encoder says of training images that are augmented anew each epoch."""
    views = task.pipeline(**_named(recipe.train_views), view=view_of(task, part))
    read = torch.no_grad()(backbone)
    return augmented_batches(task, recipe.batch_size, read, drop_last=norm, part=part, pipeline=views)


def _pictures(task: Task, part: str, recipe: ProbeRecipe, norm: bool) -> Batches:
    """Augmented training images; a last batch of one image is left out, which batch norm cannot take."""
    views = task.pipeline(**_named(recipe.train_views), view=view_of(task, part))
    alone = len(task.images("train", part)) % recipe.batch_size == 1
    return augmented_batches(
        task, recipe.batch_size, lambda seen: seen, drop_last=norm or alone, part=part, pipeline=views
    )


def _named(section: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Task.pipeline` for an augmentation by name, with its options."""
    return {"augmentation": section["name"], **{key: value for key, value in section.items() if key != "name"}}


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
