"""Colour and blur of one picture of 8 bits, by OpenCV: what `colour.py` does to batches of floats.

A worker has one picture at a time, which stays in the cache. OpenCV's operations on uint8 take a tenth of the time of
floats in torch; each rounds, and is within 2/255 of torchvision's function on the same numbers. Only the hue is turned
in floats, since 8 bits of it would be too few.

Pictures are (h, w, 3), contiguous, and may be overwritten; operations give them back, perhaps in other memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch

from manyview.core.parallel import scratch
from manyview.views.augmentation import Array, Augmentation, AugmentationParams
from manyview.views.colour import BLUE, GREEN, RED, TURNS

REACH = 3.0  # of a blur in sigmas: what is beyond would change a pixel by less than 1/255
THINNEST = 1 / 1024  # a blur whose neighbours have less weight than this changes no pixel by 1/255
_LUMA, _SAME = np.array([RED, GREEN, BLUE]), np.eye(3)
_INVERTED = np.where(np.arange(256) < 128, np.arange(256), 255 - np.arange(256)).astype(np.uint8)
_CPU = torch.device("cpu")

cv2.setNumThreads(1)  # a picture is small, and there is a worker for each core; threads would not survive a fork


def brightness(picture: Array, factor: float) -> Array:
    return _array(cv2.convertScaleAbs(picture, picture, factor))


def contrast(picture: Array, factor: float) -> Array:
    """Scales colours away from the mean luma of the picture."""
    rest = float(_LUMA @ cv2.mean(picture)[:3]) * (1 - factor)
    return _array(cv2.addWeighted(picture, factor, picture, 0.0, rest, picture))


def saturation(picture: Array, factor: float) -> Array:
    """Scales colours away from the luma of the pixel."""
    return _array(cv2.transform(picture, factor * _SAME + (1 - factor) * _LUMA))


def hue(picture: Array, turns: float) -> Array:
    """Turns the hue of HSV; value and saturation stay."""
    rgb, hsv = scratch("hue", 2, *picture.shape, device=_CPU).numpy()
    np.copyto(rgb, picture)
    cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV, hsv)
    degrees: Any = (360 * (turns % 1), 0, 0, 0)  # above 360 they are counted from 0 again
    cv2.add(hsv, degrees, hsv)
    cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB, rgb)
    return _array(cv2.convertScaleAbs(rgb, picture))


OPERATIONS = (brightness, contrast, saturation, hue)


def jitter(picture: Array, colour: Sequence[float], order: int, strengths: Sequence[float]) -> Array:
    """Jitters as torchvision's ColorJitter, in the order of that number, -1: not at all; strength 0 is left out."""
    for number in TURNS[order].tolist():
        if number >= 0 and strengths[number]:
            picture = OPERATIONS[number](picture, colour[number])
    return picture


def grey(picture: Array) -> Array:
    return _array(cv2.cvtColor(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, picture))


def blur(picture: Array, sigma: float, kernel: int) -> Array:
    """Blurs with a Gaussian of at most `kernel` x `kernel` pixels, edges reflected."""
    radius = min(kernel // 2, math.ceil(REACH * sigma), *(side - 1 for side in picture.shape[:2]))
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2).astype(np.float32)
    weights /= weights.sum()
    if radius < 1 or weights[radius + 1] < THINNEST:
        return picture
    return _array(cv2.sepFilter2D(picture, -1, weights, weights, borderType=cv2.BORDER_REFLECT_101))


def solarise(picture: Array) -> Array:
    """Inverts what is at least one half."""
    return _array(cv2.LUT(picture, _INVERTED, picture))


def coloured(picture: Array, augmentation: Augmentation, params: AugmentationParams, row: int) -> Array:
    """Does everything photometric but RandAugment's operations to a picture, by the numbers of one row."""
    first = augmentation.grey_first
    if first and params.grey[row]:
        picture = grey(picture)
    picture = jitter(picture, params.colour[row].tolist(), int(params.order[row]), augmentation.jitter)
    if not first and params.grey[row]:
        picture = grey(picture)
    if params.sigma[row] > 0:
        picture = blur(picture, float(params.sigma[row]), augmentation.blur_kernel)
    return solarise(picture) if params.solarise[row] else picture


def _array(made: Any) -> Array:
    """What OpenCV gives, whose own type says less."""
    array: Array = made
    return array
