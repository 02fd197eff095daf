"""mIoU and pixel accuracy, against loops over pixels."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.transfer.iou import IGNORED, confusion, segmentation_scores

CLASSES = ("sky", "ground", "cat", "dog")


def some(seed: int, ignored: float = 0.2) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    predicted, right = (torch.randint(0, 3, (4, 5, 6), generator=draw) for _ in range(2))
    return predicted, right.masked_fill(torch.rand(4, 5, 6, generator=draw) < ignored, IGNORED)


def by_loops(predicted: Tensor, right: Tensor) -> dict[str, float]:
    """One pixel at a time."""
    pixels = [
        (p, r) for p, r in zip(predicted.flatten().tolist(), right.flatten().tolist(), strict=True) if r != IGNORED
    ]
    ious = {}
    for c, name in enumerate(CLASSES):
        both = sum(p == c and r == c for p, r in pixels)
        either = sum(p == c or r == c for p, r in pixels)
        if either:
            ious[f"iou {name}"] = both / either
    return {
        "miou": sum(ious.values()) / len(ious),
        "pixel accuracy": sum(p == r for p, r in pixels) / len(pixels),
        **ious,
    }


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_a_loop_over_pixels(seed: int) -> None:
    predicted, right = some(seed)
    found = segmentation_scores(confusion(predicted, right, 4), CLASSES)
    assert found == pytest.approx(by_loops(predicted, right))
    assert "iou dog" not in found  # in no mask and never predicted


def test_batches_add_up_to_the_whole() -> None:
    predicted, right = some(9)
    parts = sum(confusion(predicted[rows], right[rows], 4) for rows in (slice(1), slice(1, 4)))
    assert torch.equal(torch.as_tensor(parts), confusion(predicted, right, 4))


def test_masks_of_ignored_pixels_alone_score_nothing() -> None:
    predicted = torch.zeros(1, 2, 2, dtype=torch.long)
    counts = confusion(predicted, torch.full((1, 2, 2), IGNORED), 4)
    assert segmentation_scores(counts, CLASSES) == {"miou": 0.0, "pixel accuracy": 0.0}
