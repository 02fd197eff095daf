"""Mean intersection over union and pixel accuracy, from a count of pixels by class and prediction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

IGNORED = 255  # of a mask of classes: a pixel that is neither learnt from nor scored


def confusion(predicted: Tensor, right: Tensor, classes: int) -> Tensor:
    """(classes, classes) int64: pixels of class i, the row, that are taken for class j; ignored ones do not count."""
    counted = right != IGNORED
    pairs = right[counted].long() * classes + predicted[counted].long()
    return torch.bincount(pairs.cpu(), minlength=classes**2).view(classes, classes)


def segmentation_scores(counts: Tensor, classes: Sequence[str]) -> dict[str, float]:
    """`miou`, `pixel accuracy`, and `iou NAME` of each class, of all test images together.

    IoU_c = TP_c / (TP_c + FP_c + FN_c), over the pixels of all images; mIoU is its mean over classes. A class that is
    neither in the masks nor predicted has none, and does not count.
    """
    right = counts.diagonal()
    union = counts.sum(0) + counts.sum(1) - right
    each = {name: float(right[c]) / float(union[c]) for c, name in enumerate(classes) if union[c]}
    if not each:
        return {"miou": 0.0, "pixel accuracy": 0.0}
    return {
        "miou": sum(each.values()) / len(each),
        "pixel accuracy": float(right.sum()) / float(counts.sum()) if counts.sum() else 0.0,
        **{f"iou {name}": value for name, value in each.items()},
    }
