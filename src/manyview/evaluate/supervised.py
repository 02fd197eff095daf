"""The supervised baseline: the same network, from its first weights, trained with the labels alone."""

from __future__ import annotations

from manyview.evaluate.classifier import ClassifierRecipe, choose_recipe
from manyview.evaluate.finetune import train_whole
from manyview.evaluate.task import Scores, Task

RECIPES = {
    "cifar": ClassifierRecipe(
        "kuangliu/pytorch-cifar, main.py", lr=0.1, batch_size=128, epochs=200, weight_decay=5e-4
    ),
    "imagenet": ClassifierRecipe(
        "ResNet (He et al., CVPR 2016), section 3.4, in the epochs of pytorch/examples, imagenet/main.py",
        lr=0.1, batch_size=256, epochs=90, milestones=(30, 60), weight_decay=1e-4,
    ),
}  # fmt: skip


def supervised(
    task: Task,
    *,
    recipe: str = "cifar",
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
) -> Scores:
    """Top-1 and top-5 of the model's network trained from scratch with all labels, as `linear` gives them.

    Crop and flip are drawn anew each epoch. The arguments are `finetune`'s.
    """
    numbers = choose_recipe(RECIPES, recipe, epochs=epochs, lr=lr, batch_size=batch_size)
    return _from_scratch(task, numbers)


def _from_scratch(task: Task, recipe: ClassifierRecipe) -> Scores:
    yield from train_whole(task.for_model(task.model.untrained()), recipe, text="supervised")
