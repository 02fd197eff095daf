"""The whole network learns from labels, starting from the encoder that is judged."""

from __future__ import annotations

from torch import Tensor, nn

from manyview.core.sample import Views
from manyview.evaluate.backbone import Looking, held_out, looking, looks
from manyview.evaluate.classifier import Recipe, chosen, fit, linear_head, named, seeded
from manyview.evaluate.task import Score, Scores, Task

RECIPES = {
    "swav-1": Recipe(
        "SwAV (Caron et al., NeurIPS 2020), its code for 1% of ImageNet's labels, eval_semisup.py, "
        "on 8 GPUs with 32 images each",
        lr=0.02, lr_head=5.0, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
    "swav-10": Recipe(
        "SwAV, the same for 10% of the labels",
        lr=0.01, lr_head=0.2, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
}  # fmt: skip


def finetune(
    task: Task,
    *,
    recipe: str = "swav-10",
    epochs: int | None = None,
    lr: float | None = None,
    lr_head: float | None = None,
    batch_size: int | None = None,
) -> Scores:
    """Top-1 and top-5 of an encoder that goes on learning, with a linear classifier on top, as `linear` gives them.

    A copy of the encoder learns: the subject stays as it is. Crop and flip are drawn anew each epoch.

    recipe                           a name of `RECIPES`
    epochs, lr, lr_head, batch_size  instead of the recipe's; lr_head is the classifier's
    """
    numbers = chosen(RECIPES, recipe, epochs=epochs, lr=lr, lr_head=lr_head, batch_size=batch_size)
    return trained_whole(task, numbers, text="finetune")


def trained_whole(task: Task, recipe: Recipe, *, text: str) -> Scores:
    """The scores of the subject's network after training all of it, for every part of the subject."""
    task.check()
    for part in task.parts:
        yield from named(part, _trained(task, part, recipe, text))


class Network(nn.Module):
    """Views to logits (n, classes)."""

    def __init__(self, eyes: Looking, classes: int) -> None:
        super().__init__()
        self.eyes = eyes
        self.head = linear_head(eyes.dim, classes)

    def forward(self, views: Views) -> Tensor:
        logits: Tensor = self.head(self.eyes(views))
        return logits


def _trained(task: Task, part: str, recipe: Recipe, text: str) -> list[Score]:
    eyes = looking(task, part)
    network = seeded(lambda: Network(eyes, len(task.classes)), task.seed).to(task.device)
    train = looks(task, recipe.batch_size, lambda views: views, drop_last=True)
    learning = [(network.eyes, recipe.lr), (network.head, recipe.lr_head or recipe.lr)]
    return fit(network, learning, recipe, train, held_out(task), task, [text, part])
