"""What share of the answers is right."""

from __future__ import annotations

import math

from torch import Tensor

from manyview.evaluate.task import Score

TOP = 5  # guesses, where there are more classes than that


def tops(logits: Tensor, labels: Tensor, classes: int) -> list[Score]:
    """("top1", share), and ("top5", share) with more than five classes.

    logits (n, c) may lack the last classes; a class at minus infinity is never guessed.
    """
    ks = (1, TOP) if classes > TOP else (1,)
    best = logits.topk(min(ks[-1], logits.shape[1]), 1)
    found = (best.indices.cpu() == labels.cpu()[:, None]) & (best.values.cpu() > -math.inf)
    return [(f"top{k}", float(found[:, :k].any(1).double().mean())) for k in ks]
