"""Probes: classifiers on frozen features, linear or with a hidden layer, trained as each of the papers does it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from manyview.core.bounds import Count, OptionalCount, OptionalPositive
from manyview.core.rng import key, order
from manyview.data.loader import SHUFFLE
from manyview.evaluate.backbone import (
    augmented_batches,
    check_unchanged,
    choose_layer,
    layer_features,
    trainable_backbone,
)
from manyview.evaluate.classifier import Batches, ClassifierRecipe, choose_recipe, fit, linear_head, seeded
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Score, Scores, Task
from manyview.training.optimizers import adam, lars

Head = Callable[[int, int], nn.Module]
"""(features, classes) -> the classifier"""

TEST = 4096  # features scored at a time

RECIPES: dict[str, ClassifierRecipe] = {
    "moco": ClassifierRecipe(
        "MoCo (He et al., CVPR 2020), section 4.1; batch and steps from its code, main_lincls.py",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 80),
    ),
    "jcl": ClassifierRecipe(
        "JCL (Cai et al., NeurIPS 2020), section 4.2", lr=30.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "jcl-ablation": ClassifierRecipe(
        "JCL, appendix D, ImageNet-100", lr=10.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "cacr": ClassifierRecipe(
        "CACR (Zheng et al.), appendix C.2, linear classification evaluation; weight decay as in MoCo",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 80),
    ),
    "cacr-small": ClassifierRecipe(
        "CACR, appendix C.1, evaluation: fc7 of the small AlexNet, the embedding of other encoders",
        lr=0.001, batch_size=128, epochs=100, milestones=(60, 80), factor=0.2,
        optimizer=partial(adam, betas=(0.5, 0.999)), layer="fc7",
    ),
    "dcl-openselfsup": ClassifierRecipe(
        "DCL (Yeh et al., ECCV 2022), appendix A.4, the first", lr=30.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "dcl-lars": ClassifierRecipe(
        "DCL, appendix A.4, the second, SimSiam's; its base lr 1.2 is taken as it is printed, not times 4096 / 256",
        lr=1.2, batch_size=4096, epochs=90, optimizer=lars,
    ),
    "cmc": ClassifierRecipe(
        "CMC (Tian et al., ECCV 2020), appendix E.2, ResNet-50 and ResNet-101; batch from its code",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2,
    ),
    "cmc-wide": ClassifierRecipe(
        "CMC, appendix E.2, ResNet-50 x2", lr=50.0, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2
    ),
    "cmc-alexnet": ClassifierRecipe(
        "CMC, appendix E.2, AlexNet", lr=0.1, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2
    ),
    "cmc-code": ClassifierRecipe(
        "HobbitLong/CMC as published, which is not as in the paper: 60 epochs",
        lr=30.0, batch_size=256, epochs=60, milestones=(30, 40, 50), factor=0.2,
    ),
    "moco-v3": ClassifierRecipe(
        "facebookresearch/moco-v3, main_lincls.py, ResNet-50: 0.1 x 1024 / 256", lr=0.4, batch_size=1024, epochs=90
    ),
    "moco-v3-vit": ClassifierRecipe(
        "facebookresearch/moco-v3, CONFIG.md, ViTs: 3 x 1024 / 256", lr=12.0, batch_size=1024, epochs=90
    ),
}  # fmt: skip

MLP = ClassifierRecipe(
    "CMC (Tian et al., ECCV 2020), appendix D.1: 100 epochs; E.1: Adam, x 0.2 after 120 and 160 of 200 epochs, here "
    "after as large a share; the batch, which it does not state, is CACR's, whose probe has the same numbers",
    lr=0.001, batch_size=128, epochs=100, milestones=(60, 80), factor=0.2,
    optimizer=partial(adam, betas=(0.5, 0.999)),
)  # fmt: skip


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

    recipe                  a name of `RECIPES`
    epochs, lr, batch_size  instead of the recipe's; its steps move along with the epochs
    augment                 crop and flip anew each epoch, as the papers do; False trains on features that are computed
                            once, so that a hundred epochs cost little more than one
    layer                   of the encoder, instead of the recipe's; a map is averaged to at most 9,600 numbers
    norm                    a batch norm without weights in front of the classifier, for features of any scale: learning
                            rates then mean the same for all encoders (moco-v3 issue 20, CMC issue 18)
    """
    numbers = choose_recipe(RECIPES, recipe, epochs=epochs, lr=lr, batch_size=batch_size)
    return probe(task, linear_head, numbers, augment=augment, layer=layer, norm=norm, text="linear")


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
    return probe(task, partial(mlp_head, hidden=hidden), recipe, augment=augment, layer=layer, norm=norm, text="mlp")


def mlp_head(features: int, classes: int, *, hidden: int = 200) -> nn.Module:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))


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
        backbone = trainable_backbone(task, part, layer).eval().requires_grad_(False)
        test, labels = layer_features(task, "test", part, layer)
        if augment:
            train = augmented_batches(task, recipe.batch_size, torch.no_grad()(backbone), drop_last=norm, part=part)
        else:
            train = _shuffled(task, *layer_features(task, "train", part, layer), recipe.batch_size, drop_last=norm)
        dim = test.shape[1]
        classifier = seeded(lambda: head(dim, len(task.classes)), task.seed)
        if norm:  # what is frozen has the same statistics all the time, so those of all batches count alike
            classifier = nn.Sequential(nn.BatchNorm1d(dim, eps=1e-6, momentum=None, affine=False), classifier)
        classifier.to(task.device)
        identity = [text, part, layer, augment, str(classifier)]
        learning = [(classifier, recipe.lr)]
        scores = fit(classifier, learning, recipe, train, _in_order(task, test, labels), task, identity)
        check_unchanged(backbone, task, part)
        return scores

    return by_part(task, score)


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
