"""Statistics of a modality over a sample of the data: mean and std of each channel, range, and the share of no data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.parallel import available
from manyview.core.text import printable
from manyview.data.dataset import Dataset, Unreadable, partial_sample, present

SAMPLES = 256  # of the data, whose pixels stand for all
SUSPECT = 0.01  # the share of zeros of a sensor from which on somebody is asked whether they mean "nothing seen"

NoData = float | Literal["nan"] | dict[str, float | Literal["nan"]] | None
"""The value of pixels where a sensor saw nothing, of all modalities or of each by name. NaN and infinity always are."""


@dataclass
class Moments:
    """Count, mean and sum of squared deviations of each channel over all pixels that hold data; joined by `+`.

    count      (C,) pixels that hold data
    mean, m2   (C,) float64
    low, high  (C,) the range
    missing    numbers that hold no data, of all channels together
    """

    count: Tensor
    mean: Tensor
    m2: Tensor
    low: Tensor
    high: Tensor
    missing: int = 0

    def __add__(self, other: Moments) -> Moments:
        """Joins two parts (Chan et al., 1979)."""
        count = self.count + other.count
        share, apart = other.count / count.clamp_min(1), other.mean - self.mean
        return Moments(
            count,
            self.mean + apart * share,
            self.m2 + other.m2 + apart.square() * self.count * share,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
            self.missing + other.missing,
        )

    @property
    def std(self) -> Tensor:
        """(C,) over all pixels; 0 where there is none, or all are alike."""
        return (self.m2 / self.count.clamp_min(1)).sqrt()

    @property
    def no_data(self) -> float:
        """The share of numbers that hold no data."""
        return self.missing / max(1, self.missing + int(self.count.sum()))


def moments(image: Tensor, nodata: float | None = None) -> Moments:
    """The moments of one picture (C, H, W), without pixels that are `nodata`, NaN or infinite."""
    there = holds_data(image.flatten(1), nodata)
    flat = image.flatten(1).double()
    count = there.sum(1, dtype=torch.float64)
    mean = flat.where(there, 0).sum(1) / count.clamp_min(1)
    apart = (flat - mean[:, None]).where(there, 0)
    low, high = flat.where(there, torch.inf).amin(1), flat.where(there, -torch.inf).amax(1)
    return Moments(count, mean, apart.square().sum(1), low, high, int((~there).sum()))


def holds_data(values: Tensor, nodata: float | None) -> Tensor:
    """Where values are numbers that a sensor saw. They are in the dtype of the data, to which `nodata` is rounded."""
    there = values.isfinite()
    return there if nodata is None else there & (values != nodata)


@dataclass(frozen=True)
class Statistics:
    """What a modality is normalised with: (x - mean) / std, where x is divided by 255 if it is of 8 bits.

    mean, std  of each channel, to six digits
    no_data    the share of pixels that hold none
    samples    that were looked at; 0 where the numbers were given
    scaled     whether it is of 8 bits, and x is divided
    zeros      the share of numbers that are 0 and count as data, where these are of more than 8 bits and 0 the lowest
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    no_data: float = field(default=0.0, compare=False)
    samples: int = field(default=0, compare=False)
    scaled: bool = field(default=False, compare=False)
    zeros: float = field(default=0.0, compare=False)


def statistics(dataset: Dataset, modalities: Sequence[str], nodata: NoData = None) -> dict[str, Statistics]:
    """Statistics of some modalities over `SAMPLES` samples, spread evenly over those that have each.

    Samples that cannot be read are left out. A channel without data, or of one value alone, has the std 1.
    """
    found = {}
    for name in modalities:
        rows = [row for row in range(len(dataset)) if name in present(dataset, row)]
        chosen = [rows[i * len(rows) // SAMPLES] for i in range(SAMPLES)] if len(rows) > SAMPLES else rows
        with ThreadPoolExecutor(available() if getattr(dataset, "threads", False) else 1) as pool:
            read = list(pool.map(partial(_measured, dataset, name, no_data_of(nodata, name)), chosen))
        found[name] = _summed(name, [each for each in read if each is not None])
    return found


def no_data_of(nodata: NoData, modality: str) -> float | None:
    """The value of no data in one modality; None where only NaN and infinity are."""
    value = nodata.get(modality) if isinstance(nodata, Mapping) else nodata
    return None if value is None or math.isnan(float(value)) else float(value)


Read = tuple[Moments, bool, int]
"""The moments of one sample, whether it is of 8 bits, and how many of its numbers are 0 and count as data."""


def zeros_of(image: Tensor, nodata: float | None) -> int:
    """How many numbers are 0 and count as data; none is looked for in pictures of 8 bits, where 0 is black."""
    return int((image == 0).sum()) if image.is_floating_point() and nodata != 0 else 0


def suspect_zeros(name: str, share: float, low: float | None, flag: str) -> list[str]:
    """A line where so many numbers of a sensor are 0, the lowest, that they may mean that nothing was seen."""
    if share < SUSPECT or low != 0:
        return []
    return [f"{share:.1%} of the pixels of {printable(name)} are 0: where that means nothing was seen, give {flag}"]


def _measured(dataset: Dataset, name: str, nodata: float | None, row: int) -> Read | None:
    """What is read of one sample; None where it cannot be read or lacks the modality."""
    try:
        image = partial_sample(dataset, row, (name,)).modalities.get(name)
    except Unreadable:
        return None
    return None if image is None else (moments(image, nodata), image.dtype == torch.uint8, zeros_of(image, nodata))


def _summed(name: str, read: Sequence[Read]) -> Statistics:
    if not read:
        raise UserError("data", f"of its {name} files none that was looked at can be read; try `manyview check`")
    total, unit = read[0][0], 1 / 255 if read[0][1] else 1.0
    for each, _, _ in read[1:]:
        total = total + each
    mean, std = ([float(f"{value * unit:.6g}") for value in column.tolist()] for column in (total.mean, total.std))
    zeros = sum(count for _, _, count in read) / max(1, int(total.count.sum())) if total.low.min() == 0 else 0.0
    return Statistics(tuple(mean), tuple(value or 1.0 for value in std), total.no_data, len(read), read[0][1], zeros)
