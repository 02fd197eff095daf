"""Training the whole network with labels: fine-tuning the encoder, and the supervised baseline from scratch."""

from __future__ import annotations

from torch import Tensor, nn

from manyview.core.bounds import OptionalCount, OptionalPositive
from manyview.core.sample import Views
from manyview.evaluate.backbone import ViewBackbone, augmented_batches, plain_test_batches, trainable_backbone
from manyview.evaluate.classifier import ClassifierRecipe, choose_recipe, fit, linear_head, seeded
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Score, Scores, Task

RECIPES = {
    "swav-1": ClassifierRecipe(
        "SwAV (Caron et al., NeurIPS 2020), its code for 1% of ImageNet's labels, eval_semisup.py, "
        "on 8 GPUs with 32 images each",
        lr=0.02, lr_head=5.0, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
    "swav-10": ClassifierRecipe(
        "SwAV, the same for 10% of the labels",
        lr=0.01, lr_head=0.2, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
}  # fmt: skip
FROM_SCRATCH = {
    "cifar": ClassifierRecipe(
        "kuangliu/pytorch-cifar, main.py", lr=0.1, batch_size=128, epochs=200, weight_decay=5e-4
    ),
    "imagenet": ClassifierRecipe(
        "ResNet (He et al., CVPR 2016), section 3.4, in the epochs of pytorch/examples, imagenet/main.py",
        lr=0.1, batch_size=256, epochs=90, milestones=(30, 60), weight_decay=1e-4,
    ),
}  # fmt: skip


def finetune(
    task: Task,
    *,
    recipe: str = "swav-10",
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    lr_head: OptionalPositive = None,
    batch_size: OptionalCount = None,
) -> Scores:
    """Top-1 and top-5 of an encoder that is trained on, with a linear classifier on top, as `linear` gives them.

    A copy of the encoder is trained: the model stays as it is. Crop and flip are drawn anew each epoch.

    recipe                           a name of `RECIPES`
    epochs, lr, lr_head, batch_size  instead of the recipe's; lr_head is the classifier's
    """
    numbers = choose_recipe(RECIPES, recipe, epochs=epochs, lr=lr, lr_head=lr_head, batch_size=batch_size)
    return train_whole(task, numbers, text="finetune")


def supervised(
    task: Task,
    *,
    recipe: str = "cifar",
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    batch_size: OptionalCount = None,
) -> Scores:
    """The baseline: top-1 and top-5 of the model's network trained from its first weights, with all labels.

    Crop and flip are drawn anew each epoch. The arguments are `finetune`'s, the recipes `FROM_SCRATCH`.
    """
    numbers = choose_recipe(FROM_SCRATCH, recipe, epochs=epochs, lr=lr, batch_size=batch_size)

    def scores() -> Scores:
        yield from train_whole(task.for_model(task.model.untrained()), numbers, text="supervised")

    return scores()


def train_whole(task: Task, recipe: ClassifierRecipe, *, text: str) -> Scores:
    """The scores of the model's network after training all of it, for every part of the model."""

    def score(part: str) -> list[Score]:
        backbone = trainable_backbone(task, part)
        network = seeded(lambda: Network(backbone, len(task.classes)), task.seed).to(task.device)
        train = augmented_batches(task, recipe.batch_size, lambda views: views, drop_last=True, part=part)
        learning = [(network.backbone, recipe.lr), (network.head, recipe.lr_head or recipe.lr)]
        return fit(network, learning, recipe, train, plain_test_batches(task, part), task, [text, part])

    return by_part(task, score)


class Network(nn.Module):
    """Views to logits (n, classes)."""

    def __init__(self, backbone: ViewBackbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = linear_head(backbone.dim, classes)

    def forward(self, views: Views) -> Tensor:
        logits: Tensor = self.head(self.backbone(views))
        return logits
