"""A modality of any kind as a picture for a person's eyes."""

from __future__ import annotations

import torch
from torch import Tensor

SHARES = (0.01, 0.99)  # of the values: what lies outside is shown as dark or as bright as can be
MOST_VALUES = 1 << 16  # that the range is read off; spread over the picture


def displayed(raw: Tensor) -> Tensor:
    """(C, H, W) of any type to uint8 RGB (3, H, W).

    Pictures stay as they are and one channel becomes grey. Values in a unit of their own, such as depth in millimetres,
    are stretched from their 1st to their 99th percentile, and what is not finite is black. Of two channels, or of more
    than three, the first is shown, or the first three.
    """
    shown = raw[:3] if len(raw) >= 3 else raw[:1]
    if shown.dtype != torch.uint8:
        shown = _stretched(shown.float())
    return shown.expand(3, -1, -1)


def _stretched(values: Tensor) -> Tensor:
    flat = values.flatten()
    some = flat[:: max(1, len(flat) // MOST_VALUES)]
    some = some[torch.isfinite(some)]
    if not len(some):
        return torch.zeros_like(values, dtype=torch.uint8)
    low, high = torch.quantile(some, torch.tensor(SHARES))
    scaled: Tensor = (values - low) / (high - low).clamp_min(torch.finfo(torch.float32).tiny)
    return scaled.nan_to_num(0.0, 0.0, 0.0).clamp(0, 1).mul(255).round().to(torch.uint8)
