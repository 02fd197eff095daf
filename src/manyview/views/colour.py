"""Colour and blur, whole batch at once: each picture its own strengths. Equal to torchvision's functions on floats.

Pictures are *planes*, (3, n, h, w) in [0, 1]: red of all pictures, then green, then blue. Every pass over memory then
reads one contiguous block, and everything is done in place. Factors are (n,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.parallel import scratch
from manyview.views.augmentation import Array, Augmentation, AugmentationParams
from manyview.views.rand_augment import OPERATIONS as RANDOM

RED, GREEN, BLUE = 0.2989, 0.587, 0.114  # torchvision's weights of luma
REACH = 5.0  # of a blur in sigmas: a weight beyond is under 4e-6 of the middle one


def luma(planes: Tensor) -> Tensor:
    """The brightness of each pixel, (n, h, w)."""
    return (planes[0] * RED).add_(planes[1], alpha=GREEN).add_(planes[2], alpha=BLUE)


def brightness_(planes: Tensor, factor: Tensor) -> None:
    planes.mul_(factor[:, None, None]).clamp_(0, 1)


def contrast_(planes: Tensor, factor: Tensor) -> None:
    """Scales colours away from the mean luma of the picture."""
    red, green, blue = planes.mean((2, 3))
    rest = (RED * red + GREEN * green + BLUE * blue) * (1 - factor)
    planes.mul_(factor[:, None, None]).add_(rest[:, None, None]).clamp_(0, 1)


def saturation_(planes: Tensor, factor: Tensor) -> None:
    """Scales colours away from the luma of the pixel."""
    factor = factor[:, None, None]
    grey = luma(planes).mul_(1 - factor)
    planes.mul_(factor).add_(grey).clamp_(0, 1)


def hue_(planes: Tensor, turns: Tensor) -> None:
    """Turns the hue of HSV; value and saturation stay.

    With chroma c = max - min, the hue is, in sixths of a turn from red, +-(1 - r' + g' + b') where x' = (x - min) / c,
    and its sign is that of g - b. Back: a channel is min + c clamp(2 - distance of the hue to the channel's, 0, 1).
    No pixel is looked up or compared: branches cost more than all of this arithmetic.
    """
    r, g, b = planes
    low = torch.minimum(r, g)
    torch.minimum(low, b, out=low)
    high = torch.maximum(r, g)
    torch.maximum(high, b, out=high)
    chroma = high - low
    hue = high.add_(g).add_(b).sub_(r).sub_(low, alpha=2).div_(chroma + 1e-20)  # 0 to 3
    hue = torch.copysign(hue, g - b).add_(6 * turns[:, None, None])
    hue.sub_(torch.mul(hue, 1 / 6).floor_(), alpha=6)  # 0 to 6
    distance = torch.sub(hue, 3).abs_().clamp_(1, 2)  # to cyan, opposite to red
    torch.addcmul(low - chroma, distance, chroma, out=r)
    low.add_(chroma, alpha=2)
    for channel, centre in ((g, 2), (b, 4)):
        torch.sub(hue, centre, out=distance)
        torch.addcmul(low, distance.abs_().clamp_(1, 2), chroma, value=-1, out=channel)


OPERATIONS = (brightness_, contrast_, saturation_, hue_)
TURNS = np.array([*permutations(range(4)), (-1,) * 4])  # the last one: no jitter


def coloured(planes: Tensor, augmentation: Augmentation, params: AugmentationParams) -> Tensor:
    """Does everything photometric to planes (3, n, h, w) in [0, 1], which may be overwritten."""
    if augmentation.grey_first:
        some_(planes, params.grey, grey_)
    rows: Array = np.arange(len(params.order))
    moving = len(rows) > 1 and any(augmentation.jitter)
    if any(augmentation.jitter):
        planes, rows = jitter(planes, params.colour, params.order, augmentation.jitter)
    if not augmentation.grey_first:
        some_(planes, params.grey[rows], grey_)
    sigma = params.sigma[rows]
    some_(planes, sigma > 0, partial(blur_, kernel=augmentation.blur_kernel), sigma)
    some_(planes, params.solarise[rows], solarise_)
    rand_augment_(planes, augmentation, params, rows)
    return taken(planes, rows.argsort(), "a") if moving else planes


def rand_augment_(planes: Tensor, augmentation: Augmentation, params: AugmentationParams, rows: Array) -> None:
    """Does RandAugment's operations, by the numbers of these rows."""
    for turn in range(augmentation.operations):
        drawn, level = params.operation[rows, turn], params.level[rows, turn]
        for number, operation in enumerate(RANDOM):
            some_(planes, drawn == number, operation, level)


def jitter(planes: Tensor, colour: Array, order: Array, strengths: Sequence[float]) -> tuple[Tensor, Array]:
    """Jitters as torchvision's ColorJitter, each picture in its own order; arguments as in `AugmentationParams`.

    Before each of the four turns, pictures are moved so that those of one operation lie together. They stay where they
    are then: what comes back is the planes, and which picture each is. An operation of strength 0 is left out, as it is
    there. The given planes may be overwritten; they must not lie in the scratch space "a".
    """
    rows: Array = np.arange(len(order))
    for place, turn in enumerate(TURNS[order].T):  # (n,) what happens first, second, ...
        if len(rows) > 1:
            wanted = turn.argsort(kind="stable")
            planes, rows = taken(planes, rows.argsort()[wanted], "ab"[place % 2]), wanted
        end = 0
        for number, count in enumerate(np.bincount(turn + 1, minlength=5).tolist(), start=-1):
            start, end = end, end + count
            if number >= 0 and count and strengths[number]:
                factor = torch.from_numpy(colour[rows[start:end], number])
                OPERATIONS[number](planes[:, start:end], factor.to(planes.device))
    return planes, rows


def taken(planes: Tensor, pictures: Array, into: str) -> Tensor:
    """Copies the pictures of these numbers, in this order, into scratch space."""
    index = torch.from_numpy(pictures).to(planes.device)
    return torch.index_select(planes, 1, index, out=scratch(into, *planes.shape, device=planes.device))


def some_(planes: Tensor, chosen: Array, operation: Callable[..., None], *factors: Array) -> None:
    """Runs the operation, in place, on the chosen pictures only, with their own of each array of factors."""
    rows = chosen.nonzero()[0]
    if not len(rows):
        return
    own = [factor[rows] for factor in factors]
    if len(rows) == planes.shape[1]:
        operation(planes, *own)
        return
    index = torch.from_numpy(rows).to(planes.device)
    some = planes.index_select(1, index)
    operation(some, *own)
    planes.index_copy_(1, index, some)


def grey_(planes: Tensor) -> None:
    planes.copy_(luma(planes).expand_as(planes))


def solarise_(planes: Tensor, threshold: float = 0.5) -> None:
    """Inverts what is at least the threshold."""
    bright = (planes >= threshold).to(planes.dtype)
    planes.addcmul_(bright, 1 - 2 * planes)


def blur_(planes: Tensor, sigma: Array, *, kernel: int) -> None:
    """Blurs (c, n, h, w) in place with (n,) sigmas and a kernel of `kernel` x `kernel` pixels, edges reflected.

    Equal to torchvision's gaussian_blur to 1e-5: pixels beyond five sigmas are left out, so that a narrow blur costs
    little. Sums of shifted pictures are faster than a convolution here: the kernel is symmetric and each picture's own.
    """
    weights = gaussian(sigma, min(kernel // 2, planes.shape[2] - 1, planes.shape[3] - 1))
    radius = weights.shape[1] - 1
    factors = torch.from_numpy(weights).to(planes)
    planes.copy_(_along(_along(planes, factors, radius, 3), factors, radius, 2))


def gaussian(sigma: Array, radius: int) -> Array:
    """Weights (n, at most radius + 1) of the middle pixel and of each of a pair at distance 1, 2, ...

    Each picture's weights beyond its own five sigmas are 0, so that they do not depend on who else is in the batch.
    """
    wide = sigma.astype(np.float64)[:, None]
    distance = np.arange(min(radius, math.ceil(REACH * wide.max())) + 1)
    weights = np.where(distance <= np.ceil(REACH * wide), np.exp(-0.5 * (distance / wide) ** 2), 0)
    normalised: Array = weights / (2 * weights.sum(1, keepdims=True) - weights[:, :1])
    return normalised


def _along(planes: Tensor, weights: Tensor, radius: int, dim: int) -> Tensor:
    length = planes.shape[dim]
    sides = (radius, radius, 0, 0) if dim == 3 else (0, 0, radius, radius)
    padded = F.pad(planes, sides, mode="reflect")
    out = padded.narrow(dim, radius, length) * weights[:, 0, None, None]
    for distance in range(1, radius + 1):
        pair = padded.narrow(dim, radius - distance, length) + padded.narrow(dim, radius + distance, length)
        out.addcmul_(pair, weights[:, distance, None, None])
    return out
