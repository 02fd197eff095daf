"""What identifies a data set and what its pictures are like, from its ids and a few samples."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data.dataset import Dataset, read

FEW = 16  # samples, about


def fingerprint(
    dataset: Dataset, few: Sequence[Sample] = (), *, labels: Tensor | None = None, classes: Sequence[str] = ()
) -> tuple[int, int]:
    """How many samples there are, and a check sum of their ids.

    few              samples whose pixels are summed as well, where ids may be mere numbers
    labels, classes  summed as well, where they matter
    """
    total = zlib.crc32(dataset.ids.numpy().tobytes())
    pixels = [sample.modalities[name] for sample in few for name in sorted(sample.modalities)]
    for tensor in pixels if labels is None else [labels, *pixels]:
        total = zlib.crc32(tensor.contiguous().numpy().tobytes(), total)
    return len(dataset), zlib.crc32("\0".join(classes).encode("utf-8", "surrogateescape"), total)


def few_samples(dataset: Dataset) -> list[Sample]:
    """Some samples spread over the data, those that can be read."""
    rows = range(0, len(dataset), max(1, len(dataset) // FEW))
    return [sample for row in rows if isinstance(sample := read(dataset, row), Sample)]


def usual_shape(few: Sequence[Sample], modality: str) -> tuple[int, int]:
    """Channels, and the usual length of the shorter side, of some samples' pictures."""
    shapes = [sample.modalities[modality].shape for sample in few if modality in sample.modalities]
    if not shapes:
        raise UserError("data", f"of its {modality} images none that was looked at can be read; try `manyview check`")
    sides = sorted(min(shape[1:]) for shape in shapes)
    return max(shape[0] for shape in shapes), sides[len(sides) // 2]
