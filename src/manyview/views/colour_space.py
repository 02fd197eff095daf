"""Colour spaces of pictures, whole batch at once, on planes (3, n, h, w) of RGB in [0, 1]: `SPACES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

Matrix = Sequence[Sequence[float]]

XYZ: Matrix = (  # of linear RGB with sRGB's primaries
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
D65 = (0.95047, 1.0, 1.08883)  # XYZ of daylight, for the observer of 2 degrees
YDBDR: Matrix = ((0.299, 0.587, 0.114), (-0.45, -0.883, 1.333), (-1.333, 1.116, 0.217))


class ColourSpace(NamedTuple):
    """A colour space: how RGB is converted, and the mean and std that the field normalises its channels with."""

    convert: Callable[[Tensor], Tensor]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def lab(planes: Tensor) -> Tensor:
    """CIE L*a*b* under D65, as scikit-image's rgb2lab: L in 0 to 100, a and b within +-108."""
    linear = torch.where(planes > 0.04045, ((planes + 0.055) / 1.055) ** 2.4, planes / 12.92)
    x, y, z = (_lightness(part / white) for part, white in zip(_mixed(XYZ, linear), D65, strict=True))
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def ydbdr(planes: Tensor) -> Tensor:
    """YDbDr of SECAM, as scikit-image's rgb2ydbdr: Y in 0 to 1, Db and Dr within +-1.333."""
    return _mixed(YDBDR, planes)


def _lightness(share: Tensor) -> Tensor:
    """The cube root, but a straight line where there is little light."""
    return torch.where(share > 0.008856, share.clamp_min(0) ** (1 / 3), 7.787 * share + 16 / 116)


def _mixed(matrix: Matrix, planes: Tensor) -> Tensor:
    """(3, n, h, w): each row of the matrix times the channels."""
    return torch.stack([(planes[0] * r).add_(planes[1], alpha=g).add_(planes[2], alpha=b) for r, g, b in matrix])


SPACES: dict[str, ColourSpace] = {
    "lab": ColourSpace(lab, (50.0, 6.025, -6.6895), (50.0, 92.208, 101.1675)),
    "ydbdr": ColourSpace(ydbdr, (0.457, -0.082, -0.052), (0.500, 1.331, 1.333)),
}
