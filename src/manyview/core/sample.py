"""One sample of a data set, and a batch of samples with the views that are made of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Sample:
    """One thing in the data: its modalities and its targets by name.

    id          what it is, the same for ever and in every selection of the data
    index       where it is: its row in this data set, 0 to n - 1
    modalities  (C, H, W) each: uint8 for pictures, float32 in its own unit for others; a missing one is not there
    targets     what is known of it beyond its modalities, as far as the data has it: "label" is the number of its
                class, "labels" are those of its classes where it may have several; others are "caption", "boxes",
                "keypoints", "mask"
    size        height and width of its first modality, which may be decoded smaller; None where nobody says
    """

    id: int
    index: int
    modalities: dict[str, Tensor]
    targets: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None


Views = dict[str, list[Tensor]]
"""The augmented copies of each view, (N, C, size, size) each: {"image": [copy 0, copy 1]}."""


@dataclass(frozen=True, eq=False)
class Batch:
    """N samples of one process; all tensors are on the loader's device.

    ids, index, labels  (N,) int64; a label is -1 where there is none
    present             (N,) bool per view: False where a sample lacks its modality, and the view is made of zeros;
                        empty where all views are of one modality, which no sample in a batch lacks
    """

    ids: Tensor
    index: Tensor
    labels: Tensor
    present: dict[str, Tensor]
    make: Callable[[slice], Views]

    def views(self, rows: slice = slice(None)) -> Views:
        """Makes the views of some rows; asked again, it makes the same ones again."""
        return self.make(rows)

    def __len__(self) -> int:
        return len(self.ids)
