"""A sample as the data set has it, and the views that are made of a batch of samples."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """One thing in the data: its modalities by name, and its label.

    id     what it is, the same for ever and in every selection of the data
    index  where it is: its row in this data set, 0 to n - 1
    modalities  (C, H, W) each: uint8 for pictures, float32 in its own unit for others; a missing one is not there
    label  -1 where there is none
    """

    id: int
    index: int
    modalities: dict[str, Tensor]
    label: int = -1


Views = dict[str, list[Tensor]]
"""Per raw view its looks, each (N, C, size, size): {"image": [look 1, look 2]}."""
