"""CMC's classifier with one hidden layer, on frozen features."""

from __future__ import annotations

from functools import partial

from torch import nn

from manyview.core.errors import UserError
from manyview.evaluate.classifier import ClassifierRecipe, choose_recipe
from manyview.evaluate.probe import probe
from manyview.evaluate.task import Scores, Task
from manyview.training.optimizers import adam

RECIPES = {
    "cmc": ClassifierRecipe(
        "CMC (Tian et al., ECCV 2020), appendix D.1: 100 epochs; E.1: Adam, x 0.2 after 120 and 160 of 200 epochs, "
        "here after as large a share; the batch, which it does not state, is CACR's, whose probe has the same numbers",
        lr=0.001, batch_size=128, epochs=100, milestones=(60, 80), factor=0.2,
        optimizer=partial(adam, betas=(0.5, 0.999)),
    )
}  # fmt: skip


def mlp(
    task: Task,
    *,
    hidden: int = 200,
    epochs: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    augment: bool = True,
    layer: str | None = None,
    norm: bool = False,
) -> Scores:
    """Top-1 and top-5 of a classifier with a hidden layer of 200 units (CMC, Table 7), as `linear` gives them.

    CMC puts it on the conv5 and the fc7 of an AlexNet; here it sits on the embedding, or on a `layer`. Of batch norm
    or dropout inside the classifier the paper says nothing, and there is none. The other arguments are `linear`'s.
    """
    if hidden < 1:
        raise UserError("hidden", f"expected at least 1 unit, got {hidden}")
    recipe = choose_recipe(RECIPES, "cmc", epochs=epochs, lr=lr, batch_size=batch_size)
    head = partial(two_layers, hidden=hidden)
    return probe(task, head, recipe, augment=augment, layer=layer, norm=norm, text="mlp")


def two_layers(features: int, classes: int, *, hidden: int = 200) -> nn.Module:
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, classes))
