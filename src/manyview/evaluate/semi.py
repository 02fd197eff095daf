"""Few labels: how good a classifier gets that is trained with 1% or 10% of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch

from manyview.core.bounds import Above, AtMost, OptionalCount, OptionalPositive
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data import Dataset, subset
from manyview.evaluate.finetune import finetune
from manyview.evaluate.linear import linear
from manyview.evaluate.task import Scores, Task

LITTLE = 0.03  # shares up to this are nearer to SwAV's 1% than to its 10%
FEW = 0xFE3  # keeps this draw apart from others with the same seed
PROTOCOLS: dict[str, Callable[..., Scores]] = {"finetune": finetune, "linear": linear}


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
    given = {"epochs": epochs, "lr": lr, "batch_size": batch_size}
    settings = {fraction: {**given, **_own(mode, recipe, fraction, lr_head)} for fraction in fractions}
    for each in settings.values():
        PROTOCOLS[mode](task, **each)  # which refuses what is wrong, and does nothing yet

    def scores() -> Scores:
        for fraction, each in settings.items():
            few = task.training_on(some_of_each_class(task.train, fraction, task.seed))
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


def _own(mode: str, recipe: str | None, fraction: float, lr_head: float | None) -> dict[str, Any]:
    """The arguments that depend on the protocol."""
    if mode == "linear":
        return {} if recipe is None else {"recipe": recipe}
    return {"recipe": recipe or ("swav-1" if fraction <= LITTLE else "swav-10"), "lr_head": lr_head}
