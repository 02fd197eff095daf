"""Colour spaces: `SPACES`, how RGB becomes Lab, YDbDr, YCbCr, HSV or HED, equal to scikit-image's functions.

Pictures are planes (3, n, h, w) of RGB in [0, 1], as in `colour.py`, and so are the converted ones. Where a formula has
two branches no pixel is compared, and no power is taken: `torch.where` and `torch.pow` cost several times as much as
the arithmetic that stands for them here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from manyview.core.memory import new_memory
from manyview.core.parallel import parallel_map, scratch

PART_PIXELS = 1 << 17  # converted at a time, by one core: enough that starting the operations costs little
VECTOR = 64  # numbers that torch works on at a time, or a multiple of that

Matrix = Sequence[Sequence[float]]
Channels = tuple[float, float, float]

XYZ: Matrix = (  # of linear RGB with sRGB's primaries
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
D65 = (0.95047, 1.0, 1.08883)  # XYZ of daylight, for the observer of 2 degrees
RELATIVE_XYZ: Matrix = [[each / white for each in row] for row, white in zip(XYZ, D65, strict=True)]
YDBDR: Matrix = ((0.299, 0.587, 0.114), (-0.45, -0.883, 1.333), (-1.333, 1.116, 0.217))
YCBCR: Matrix = ((65.481, 128.553, 24.966), (-37.797, -74.203, 112.0), (112.0, -93.786, -18.214))
STAINS: Matrix = (  # the inverse of Ruifrok and Johnston's optical densities, ((.65, .70, .29), (.07, .99, .11), ...)
    (1.87798274, -0.06590806, -0.60190736),
    (-1.00767869, 1.13473037, -0.48041419),
    (-0.55611582, -0.13552180, 1.57358807),
)
DARKEST = 1e-6  # below it there is no logarithm

SRGB_DARK, LIGHTNESS_DARK = 0.04045, 0.008856  # below these sRGB's curve and Lab's are straight lines
LIGHTNESS_GAP = LIGHTNESS_DARK ** (1 / 3) - (7.787 * LIGHTNESS_DARK + 16 / 116)  # Lab's line ends below its curve
GAP_WIDTH = 1e-7


class ColourSpace(NamedTuple):
    """A colour space: how RGB is converted, and the mean and std that its channels are normalised with."""

    convert: Callable[[Tensor], Tensor]
    mean: Channels
    std: Channels


def lab(planes: Tensor) -> Tensor:
    """CIE L*a*b* under D65, as scikit-image's rgb2lab: L in 0 to 100, a and b within +-108."""
    return _in_parts(_lab, planes)


def ydbdr(planes: Tensor) -> Tensor:
    """YDbDr of SECAM, as scikit-image's rgb2ydbdr: Y in 0 to 1, Db and Dr within +-1.333."""
    return _in_parts(lambda part, out: _mix(YDBDR, part, out), planes)


def ycbcr(planes: Tensor) -> Tensor:
    """YCbCr of BT.601, as scikit-image's rgb2ycbcr: Y in 16 to 235, Cb and Cr in 16 to 240."""
    return _in_parts(_ycbcr, planes)


def hsv(planes: Tensor) -> Tensor:
    """Hue in turns from red, saturation and value, as scikit-image's rgb2hsv: all in 0 to 1; grey has hue 0."""
    return _in_parts(_hsv, planes)


def hed(planes: Tensor) -> Tensor:
    """Haematoxylin, eosin and DAB (Ruifrok and Johnston, 2001), as scikit-image's rgb2hed: 0 to 1.88, 1.13, 1.57."""
    return _in_parts(_hed, planes)


def _in_parts(convert: Callable[[Tensor, Tensor], None], planes: Tensor) -> Tensor:
    """Converts a few pictures at a time; all at once on a GPU."""
    out = new_memory(planes.shape, planes.dtype, planes.device)
    pictures = max(1, PART_PIXELS // max(1, planes.shape[2] * planes.shape[3]))
    step = pictures if planes.device.type == "cpu" else max(1, planes.shape[1])
    parts = list(zip(planes.split(step, 1), out.split(step, 1), strict=True))
    parallel_map(lambda part: convert(*part), parts)
    return out


def _mix(matrix: Matrix, planes: Tensor, out: Tensor) -> None:
    """Each row of the matrix times the channels."""
    for plane, (r, g, b) in zip(out, matrix, strict=True):
        torch.mul(planes[0], r, out=plane).add_(planes[1], alpha=g).add_(planes[2], alpha=b)


def _lab(planes: Tensor, out: Tensor) -> None:
    """Works in two blocks of scratch space (3, pixels), filled up to whole vectors.

    torch computes what is left over after the last whole vector otherwise, with another last bit: a pixel would depend
    on how many there are.
    """
    count = planes[0].numel()
    one, two = (scratch(name, 3, -(-count // VECTOR) * VECTOR, device=planes.device) for name in ("lab 1", "lab 2"))
    one[:, :count].unflatten(1, planes.shape[1:]).copy_(planes)
    one[:, count:] = 1
    _linear_(one, two)
    _mix(RELATIVE_XYZ, one, two)
    _lightness_(two, one)
    x, y, z = two[:, :count].unflatten(1, planes.shape[1:])
    torch.mul(y, 116, out=out[0]).sub_(16)
    torch.sub(x, y, out=out[1]).mul_(500)
    torch.sub(y, z, out=out[2]).mul_(200)


def _linear_(colour: Tensor, line: Tensor) -> None:
    """Light of sRGB: ((c + .055) / 1.055)^2.4, but c / 12.92 where it is dark; `line` is overwritten.

    It is the curve of max(c, dark), plus the line from dark down to min(c, dark).
    """
    torch.clamp(colour, max=SRGB_DARK, out=line).sub_(SRGB_DARK)
    colour.clamp_min_(SRGB_DARK).add_(0.055).mul_(1 / 1.055).log2_().mul_(2.4).exp2_().add_(line, alpha=1 / 12.92)


def _lightness_(share: Tensor, line: Tensor) -> None:
    """The cube root of the share of white, but 7.787 s + 16 / 116 where it is dark, which ends 3e-7 below that."""
    torch.clamp(share, max=LIGHTNESS_DARK, out=line).sub_(LIGHTNESS_DARK)
    share.clamp_min_(LIGHTNESS_DARK).log2_().mul_(1 / 3).exp2_().add_(line, alpha=7.787)
    share.add_(line.clamp_min_(-GAP_WIDTH), alpha=LIGHTNESS_GAP / GAP_WIDTH)


def _ycbcr(planes: Tensor, out: Tensor) -> None:
    _mix(YCBCR, planes, out)
    out[0] += 16
    out[1:] += 128


def _hsv(planes: Tensor, out: Tensor) -> None:
    """The hue is found as in `colour.hue_`."""
    r, g, b = planes
    hue, saturation, value = out
    low = torch.minimum(r, g)
    torch.minimum(low, b, out=low)
    torch.maximum(r, g, out=value)
    torch.maximum(value, b, out=value)
    chroma = value - low
    torch.div(chroma, value.clamp_min(1e-20), out=saturation)
    sixths = torch.add(value, g).add_(b).sub_(r).sub_(low, alpha=2).div_(chroma.clamp_min_(1e-20))  # 0 to 3
    torch.copysign(sixths, g - b, out=hue).mul_(1 / 6)
    hue.sub_(torch.floor(hue))


def _hed(planes: Tensor, out: Tensor) -> None:
    density = planes.clamp_min(DARKEST).log_().mul_(1 / math.log(DARKEST))
    _mix(STAINS, density, out)
    out.clamp_min_(0)


SPACES: dict[str, ColourSpace] = {
    # as the authors of CMC normalise: Lab and YCbCr in their code for the paper, YDbDr in their later PyContrast
    "lab": ColourSpace(lab, (50.0, 6.025, -6.6895), (50.0, 92.208, 101.1675)),
    "ydbdr": ColourSpace(ydbdr, (0.457, -0.082, -0.052), (0.500, 1.331, 1.333)),
    "ycbcr": ColourSpace(ycbcr, (116.151, 121.080, 132.342), (109.500, 111.855, 111.964)),
    # unpublished: the middle and half of the range, as theirs are for Lab
    "hsv": ColourSpace(hsv, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    # unpublished: of CIFAR-10's training pictures, for nearly all colours lie in the lowest tenth of the range
    "hed": ColourSpace(hed, (0.0765, 0.0014, 0.0775), (0.0996, 0.0189, 0.0848)),
}
