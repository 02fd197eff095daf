"""Scores of every part of a model, and what share of the answers is right."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from torch import Tensor

from manyview.evaluate.task import Score, Scores, Task
from manyview.features.gain import Share

TOP = 5  # guesses, where there are more classes than that


def by_part(task: Task, score: Callable[[str], Iterable[Score]], *, several: bool = False) -> Scores:
    """The scores of each part of a model, with the part in front of their names if there are several.

    The data is checked at once, whose samples may have `several` labels if that is said; scores are computed when they
    are read.
    """
    task.check(several=several)
    return ((f"{part} {name}" if part else name, value) for part in task.parts for name, value in score(part))


def on_features(task: Task, score: Callable[[Tensor, Tensor, Tensor, Tensor], Iterable[Score]]) -> Scores:
    """`by_part` of a score of embeddings (n, d) and labels (n,): of the training images, and of the test images."""
    return by_part(task, lambda part: score(*task.features("train", part), *task.features("test", part)))


def tops(logits: Tensor, labels: Tensor, classes: int) -> list[Score]:
    """("top1", share), and ("top5", share) with more than five classes.

    logits (n, c) may lack the last classes; a class at minus infinity is never guessed.
    """
    ks = (1, TOP) if classes > TOP else (1,)
    best = logits.topk(min(ks[-1], logits.shape[1]), 1)
    found = (best.indices.cpu() == labels.cpu()[:, None]) & (best.values.cpu() > -math.inf)
    return [(f"top{k}", Share.of(found[:, :k].any(1))) for k in ks]
