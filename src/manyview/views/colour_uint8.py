"""Colour and blur of one picture of 8 bits, by OpenCV: what `colour.py` does to batches of floats.

A worker has one picture at a time, which stays in the cache. OpenCV's operations on uint8 take a tenth of the time of
floats in torch; each rounds, and is within 2/255 of torchvision's function on the same numbers.

Pictures are (h, w, 3), contiguous, and may be overwritten; operations give them back, perhaps in other memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from manyview.views.augmentation import Array, Augmentation, AugmentationParams
from manyview.views.colour import BLUE, GREEN, RED, TURNS

REACH = 3.0  # of a blur in sigmas: what is beyond would change a pixel by less than 1/255
LIGHTEST = 1 / 1024  # neighbours that have less weight than this change no pixel by 1/255
_LUMA, _SAME = np.array([RED, GREEN, BLUE]), np.eye(3)
_INVERTED = np.where(np.arange(256) < 128, np.arange(256), 255 - np.arange(256)).astype(np.uint8)

cv2.setNumThreads(1)  # a picture is small, and there is a worker for each core; threads would not survive a fork


def brightness(picture: Array, factor: float) -> Array:
    return _array(cv2.convertScaleAbs(picture, picture, factor))


def contrast(picture: Array, factor: float) -> Array:
    """Scales colours away from the mean luma of the picture."""
    red, green, blue, _ = cv2.mean(picture)
    rest = (RED * red + GREEN * green + BLUE * blue) * (1 - factor)
    return _array(cv2.addWeighted(picture, factor, picture, 0.0, rest, picture))


def saturation(picture: Array, factor: float) -> Array:
    """Scales colours away from the luma of the pixel."""
    return _array(cv2.transform(picture, factor * _SAME + (1 - factor) * _LUMA))


def hue(picture: Array, turns: float) -> Array:
    """Turns the hue of HSV; value and saturation stay.

    A third of a turn moves every channel into the place of the next one. What is left is at most a sixth, s sixths. It
    moves only the channels between the lowest of the pixel, m, and its highest, M, and these by s (M - m): up by what
    the next channel lacks to m + s (M - m), then down by what it has above M - s (M - m), but no channel leaves m to
    M. The other way round, the previous channel is the next one. So no hue is computed, and bytes are enough.
    """
    thirds = round(3 * turns)
    sixths = 6 * turns - 2 * thirds
    step = 1 if sixths > 0 else -1
    planes: Any = np.empty((11, *picture.shape[:2]), np.uint8)
    channels, made, (low, high, least, most, x) = list(planes[:3]), list(planes[3:6]), planes[6:]
    cv2.split(picture, channels)
    red, green, blue = channels
    cv2.min(cv2.min(red, green, low), blue, low)
    cv2.max(cv2.max(red, green, high), blue, high)
    cv2.convertScaleAbs(cv2.subtract(high, low, x), x, abs(sixths))
    cv2.add(low, x, least)
    cv2.subtract(high, x, most)
    for number, channel in enumerate(channels):
        following, out = channels[(number + step) % 3], made[(number + thirds) % 3]
        cv2.min(cv2.add(channel, cv2.subtract(least, following, x), out), high, out)
        # up to half a sixth, no channel that went up would go down
        limit = most if abs(sixths) <= 0.5 else cv2.max(most, channels[(number - step) % 3], x)
        cv2.max(cv2.subtract(out, cv2.subtract(following, limit, x), out), low, out)
    return _array(cv2.merge(made, picture))


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
    half = [math.exp(-0.5 * (place / sigma) ** 2) for place in range(1, radius + 1)]  # quicker than numpy for so few
    least = LIGHTEST * (1 + 2 * sum(half))
    half = [weight for weight in half if weight >= least]
    if not half:
        return picture
    total = 1 + 2 * sum(half)
    weights = np.array([each / total for each in (*reversed(half), 1.0, *half)], np.float32)
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
