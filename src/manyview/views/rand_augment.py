"""RandAugment without operations on colour, as CMC takes it: `OPERATIONS` on planes (3, n, h, w) of RGB, in place.

Cubuk et al. (2019) draw some operations for each picture, all of one magnitude. The CMC paper adds it ("+ RA") and does
not say how; this follows its authors' PyContrast: eight operations that leave colours alone, since those are what tells
views apart, each skipped with chance one half, magnitude 10 of 10 with noise of std .5 cut off at 0 and 10. Theirs
interpolates bilinearly or bicubically at random, this bilinearly.

Every operation takes (n,) levels in [-1, 1]: the magnitude as a share of the largest, with a random sign.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.views.augmentation import Array

FILL = (124 / 255, 116 / 255, 104 / 255)  # the mean of ImageNet: what comes in from outside of the picture
MOST_DEGREES, MOST_SHEAR, MOST_SHIFT = 30.0, 0.3, 0.45  # the last one of the side


def identity_(planes: Tensor, level: Array) -> None:
    """Leaves the pictures as they are."""


def autocontrast_(planes: Tensor, level: Array) -> None:
    """Stretches each channel of a picture to 0 to 1, as torchvision's autocontrast; one of a single value stays."""
    low, high = planes.amin((2, 3), keepdim=True), planes.amax((2, 3), keepdim=True)
    flat = (high == low).to(planes.dtype)
    low = low * (1 - flat)
    planes.sub_(low).div_((high - low) * (1 - flat) + flat).clamp_(0, 1)


def sharpness_(planes: Tensor, level: Array) -> None:
    """Sharpens by a factor of up to 1.9, as torchvision's adjust_sharpness; the rim of a pixel stays."""
    if min(planes.shape[2:]) <= 2:
        return
    factor = _numbers(0.1 + 1.8 * abs(level), planes)[:, None, None]
    inner = planes[:, :, 1:-1, 1:-1]
    smooth = F.avg_pool2d(planes, 3, 1).mul_(9).add_(inner, alpha=4).mul_(1 / 13)
    inner.mul_(factor).addcmul_(smooth, 1 - factor)
    planes.clamp_(0, 1)


def rotate_(planes: Tensor, level: Array) -> None:
    """Turns about the middle by up to 30 degrees."""
    angle = np.deg2rad(MOST_DEGREES * level)
    height, width = planes.shape[2:]
    cos, sin = np.cos(angle), np.sin(angle)
    x, y = width / 2, height / 2
    _move_(planes, (cos, -sin, x - cos * x + sin * y), (sin, cos, y - sin * x - cos * y))


def shear_x_(planes: Tensor, level: Array) -> None:
    """Shifts rows by up to 0.3 of their distance to the upper edge."""
    one, none = np.ones_like(level), np.zeros_like(level)
    _move_(planes, (one, MOST_SHEAR * level, none), (none, one, none))


def shear_y_(planes: Tensor, level: Array) -> None:
    """Shifts columns by up to 0.3 of their distance to the left edge."""
    one, none = np.ones_like(level), np.zeros_like(level)
    _move_(planes, (one, none, none), (MOST_SHEAR * level, one, none))


def translate_x_(planes: Tensor, level: Array) -> None:
    """Shifts along x by up to 45% of the width."""
    one, none = np.ones_like(level), np.zeros_like(level)
    _move_(planes, (one, none, MOST_SHIFT * planes.shape[3] * level), (none, one, none))


def translate_y_(planes: Tensor, level: Array) -> None:
    """Shifts along y by up to 45% of the height."""
    one, none = np.ones_like(level), np.zeros_like(level)
    _move_(planes, (one, none, none), (none, one, MOST_SHIFT * planes.shape[2] * level))


Row = tuple[Array, Array, Array]


def _move_(planes: Tensor, to_x: Row, to_y: Row) -> None:
    """Takes the pixel at (x, y) from (a x + b y + c, d x + e y + f) of the picture; (n,) numbers each, in pixels."""
    height, width = planes.shape[2:]
    rows = torch.arange(height, device=planes.device, dtype=planes.dtype).add_(0.5)[:, None]
    columns = torch.arange(width, device=planes.device, dtype=planes.dtype).add_(0.5)
    axes = []
    for row, length in ((to_x, width), (to_y, height)):
        a, b, c = (_numbers(each, planes)[:, None, None] for each in row)
        axes.append((a * columns + b * rows + c) * (2 / length) - 1)
    fill = torch.tensor(FILL, device=planes.device, dtype=planes.dtype)[:, None, None, None]
    pictures = (planes - fill).transpose(0, 1)
    moved = F.grid_sample(pictures, torch.stack(axes, 3), align_corners=False)
    torch.add(moved.transpose(0, 1), fill, out=planes)


def _numbers(each: Array, like: Tensor) -> Tensor:
    return torch.from_numpy(each.astype(np.float32)).to(like)


OPERATIONS: tuple[Callable[[Tensor, Array], None], ...] = (
    identity_, autocontrast_, sharpness_, rotate_, shear_x_, shear_y_, translate_x_, translate_y_,
)  # fmt: skip
