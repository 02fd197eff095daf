"""The random transform that makes one copy of a view: the `Augmentation`, and the numbers drawn for each picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from manyview.core.errors import UserError

Array = np.ndarray[Any, Any]

TRIES = 10  # how often torchvision's RandomResizedCrop draws a box before it takes the central one
MOST_OPERATIONS = 4  # of RandAugment on one picture
GEOMETRY, PHOTOMETRY = 2 * TRIES + 3, 10 + 4 * MOST_OPERATIONS  # numbers that one picture takes
ORDERS = 24  # of brightness, contrast, saturation and hue
RANDOM_OPERATIONS = 8  # that RandAugment draws from (`rand_augment.OPERATIONS`),
SKIPPED, MAGNITUDE_STD = 0.5, 0.5  # the chance that one is skipped, and the noise of the magnitude


@dataclass(frozen=True)
class Augmentation:
    """How one copy of a view is made: crop, flip, colour, in this order; the names are torchvision's.

    size        side of the view in pixels
    scale       share of the picture that the crop covers; None takes the middle of the picture instead
    ratio       width / height of the crop
    resize      without `scale`: the short side becomes `resize` pixels, then the middle is cut out
    flip        chance of a horizontal flip
    jitter      strengths of brightness, contrast, saturation (a factor in 1 +- x) and hue (turns, +- x), in an order
                drawn for each picture
    jitter_p    chance that the jitter happens
    grey        chance of greyscale
    grey_first  greyscale before the jitter (MoCo v1) instead of after it
    blur        chance of a Gaussian blur
    sigma       its width in pixels is drawn between these
    kernel      side of the blur's kernel, odd; None: a tenth of `size`
    solarise    chance that pixels of at least one half are inverted
    offset      instead of `scale`: exactly `size` pixels, not resized, so many pixels to the right of and below a place
                that all copies share; the second number is the largest offset of a copy, for which room is left
    operations  how many of RandAugment (`rand_augment.py`) come last; 0: none. They turn, shear and shift pictures and
                no other modality
    magnitude   of these operations, 0 to 10
    patch       side of nine patches that the view is cut into in the end, one out of each cell of a 3x3 grid, in a
                random order, (n, 9, C, patch, patch): see `jigsaw_of`; None leaves it whole
    """

    size: int
    scale: tuple[float, float] | None = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resize: int | None = None
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    jitter_p: float = 1.0
    grey: float = 0.0
    grey_first: bool = False
    blur: float = 0.0
    sigma: tuple[float, float] = (0.1, 2.0)
    kernel: int | None = None
    solarise: float = 0.0
    offset: tuple[int, int] | None = None
    operations: int = 0
    magnitude: float = 10.0
    patch: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 1:
            raise UserError("size", f"expected a whole number of pixels, at least 1, got {self.size}")
        for name, length in (("scale", 2), ("ratio", 2), ("jitter", 4), ("sigma", 2)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, tuple) or len(value) != length):
                raise UserError(name, f"expected {length} numbers, as a tuple, got {value!r}")
        for name in ("flip", "jitter_p", "grey", "blur", "solarise"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(name, f"expected a chance between 0 and 1, got {getattr(self, name)}")
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise UserError("scale", f"expected shares of the picture, 0 < low <= high <= 1, got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise UserError("ratio", f"expected width / height of a crop, 0 < low <= high, got {self.ratio}")
        if min(self.jitter) < 0 or self.jitter[3] > 0.5:
            raise UserError(
                "jitter", f"expected strengths of at least 0, the last, hue, at most 0.5, got {self.jitter}"
            )
        if not 0 < self.sigma[0] <= self.sigma[1]:
            raise UserError("sigma", f"expected the blur's width in pixels, 0 < low <= high, got {self.sigma}")
        if self.kernel is not None and (self.kernel < 1 or self.kernel % 2 == 0):
            raise UserError("kernel", f"expected the odd side of the blur's kernel, got {self.kernel}")
        if self.offset is not None and not 0 <= self.offset[0] <= self.offset[1]:
            raise UserError("offset", f"expected pixels, 0 <= that of this copy <= the largest, got {self.offset}")
        if not 0 <= self.operations <= MOST_OPERATIONS:
            raise UserError("operations", f"expected 0 to {MOST_OPERATIONS} of RandAugment, got {self.operations}")
        if not 0 <= self.magnitude <= 10:
            raise UserError("magnitude", f"expected that of RandAugment's operations, 0 to 10, got {self.magnitude}")
        if self.resize is not None and (self.scale is not None or self.resize < self.size):
            raise UserError(
                "resize", f"expected at least size={self.size}, and only with scale=None, got {self.resize}"
            )
        if self.patch is not None and not 1 <= self.patch <= self.size // 3:
            raise UserError("patch", f"expected 1 to {self.size // 3}, a third of size={self.size}, got {self.patch}")

    @property
    def blur_kernel(self) -> int:
        return self.kernel or max(3, self.size // 10 | 1)

    def check_picture(self, height: int, width: int) -> None:
        """Raises what is wrong with pictures of this size."""
        if self.offset is not None and min(height, width) < self.size + self.offset[1]:
            least = self.size + self.offset[1]
            raise UserError(
                "distance",
                f"patches of {self.size} pixels up to {self.offset[1]} apart need pictures of {least} x {least}, "
                f"got {width} x {height}; give a smaller one, or larger pictures",
            )


class AugmentationParams(NamedTuple):
    """The numbers that one augmentation drew for n pictures."""

    box: Array  # (n, 4) int64: top, left, height, width, in pixels of the picture
    flip: Array  # (n,) bool
    colour: Array  # (n, 4) float32 factors of brightness, contrast, saturation; hue in turns
    order: Array  # (n,) which of the 24 orders; -1: no jitter
    grey: Array  # (n,) bool
    sigma: Array  # (n,) float32, 0: no blur
    solarise: Array  # (n,) bool
    operation: Array  # (n, 4) which of RandAugment's operations come first, second, ...; -1: none
    level: Array  # (n, 4) float32 in [-1, 1]: how much of each


def draw(a: Augmentation, g: Array, p: Array, height: int, width: int) -> AugmentationParams:
    """Draws what happens to n pictures of one size, from numbers in [0, 1): (n, 23) for geometry, (n, 26) for colour.

    Pictures that show the same thing as different modalities share the geometric numbers.
    """
    return draw_unplaced(a, g, p)._replace(box=draw_boxes(a, g, height, width))


def draw_unplaced(a: Augmentation, g: Array, p: Array) -> AugmentationParams:
    """Draws all but the boxes, which are of no size: what can be drawn before a picture is known."""
    strength, centre = np.array(a.jitter), np.array([1.0, 1.0, 1.0, 0.0])
    low, high = np.maximum(centre - strength, [0.0, 0.0, 0.0, -1.0]), centre + strength
    active = (p[:, 4] < a.jitter_p) & any(a.jitter)
    sigma = a.sigma[0] + (a.sigma[1] - a.sigma[0]) * p[:, 6]
    which, done, noise, sign = np.moveaxis(p[:, 10:].reshape(len(p), MOST_OPERATIONS, 4), 2, 0)
    done = (done >= SKIPPED) & (np.arange(MOST_OPERATIONS) < a.operations)
    magnitude = a.magnitude + MAGNITUDE_STD * torch.special.ndtri(torch.from_numpy(noise)).numpy()
    level = np.where(sign < 0.5, -0.1, 0.1) * magnitude.clip(0, 10)
    return AugmentationParams(
        box=np.zeros((len(g), 4), np.int64),
        flip=g[:, 22] < a.flip,
        colour=(low + (high - low) * p[:, 0:4]).astype(np.float32),
        order=np.where(active, (p[:, 5] * ORDERS).astype(np.int64), -1),
        grey=p[:, 7] < a.grey,
        sigma=np.where(p[:, 8] < a.blur, sigma, 0.0).astype(np.float32),
        solarise=p[:, 9] < a.solarise,
        operation=np.where(done, (which * RANDOM_OPERATIONS).astype(np.int64), -1),
        level=level.astype(np.float32),
    )


def draw_boxes(a: Augmentation, g: Array, height: int, width: int) -> Array:
    """Boxes (n, 4) of an augmentation: top, left, height, width; without a crop the whole picture."""
    if a.offset is not None:
        return patch_boxes(g, height, width, a.size, a.offset)
    if a.scale is not None:
        return random_boxes(g, height, width, a.scale, a.ratio)
    return np.broadcast_to(np.array([0, 0, height, width]), (len(g), 4))


def patch_boxes(u: Array, height: int, width: int, size: int, offset: tuple[int, int]) -> Array:
    """Boxes (n, 4) of `size` pixels at (x + d, y + d), d being the first offset; (x, y) leaves room for the second."""
    top, left = (
        (u[:, 2 * TRIES + axis] * (length - size - offset[1] + 1)).astype(np.int64) + offset[0]
        for axis, length in enumerate((height, width))
    )
    return np.stack([top, left, np.full_like(top, size), np.full_like(top, size)], 1)


def random_boxes(u: Array, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]) -> Array:
    """Draws torchvision's RandomResizedCrop.get_params for n pictures at once, from (n, 22 or more) uniform numbers."""
    share, aspect = crop_shapes(u, scale, ratio)
    area = height * width * share
    w, h = (np.rint(np.sqrt(side)).astype(np.int64) for side in (area * aspect, area / aspect))  # (n, TRIES)
    fits = (w > 0) & (h > 0) & (w <= width) & (h <= height)
    first = (np.arange(len(u)), fits.argmax(1))
    w, h = w[first], h[first]
    top = (u[:, 2 * TRIES] * (height - h + 1)).astype(np.int64)
    left = (u[:, 2 * TRIES + 1] * (width - w + 1)).astype(np.int64)
    boxes = np.stack([top, left, h, w], 1)
    boxes[~fits.any(1)] = central_box(height, width, ratio)
    return boxes


def crop_shapes(u: Array, scale: tuple[float, float], ratio: tuple[float, float]) -> tuple[Array, Array]:
    """The share of a picture and the width / height, (n, TRIES) each, that a crop tries one after another."""
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect: Array = np.exp(low + (high - low) * u[:, TRIES : 2 * TRIES])
    return scale[0] + (scale[1] - scale[0]) * u[:, :TRIES], aspect


def random_box(
    shapes: Iterable[tuple[float, float]],
    corner: Sequence[float],
    height: int,
    width: int,
    ratio: tuple[float, float],
) -> tuple[int, int, int, int]:
    """One box of `random_boxes`, to the bit, from its `crop_shapes` and the two numbers that place it.

    For one picture this takes a tenth of the time, and a worker knows the sizes of pictures only one by one.
    """
    for share, aspect in shapes:
        area = height * width * share
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return int(corner[0] * (height - h + 1)), int(corner[1] * (width - w + 1)), h, w
    return central_box(height, width, ratio)


def central_box(height: int, width: int, ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """The largest box in the middle whose ratio is allowed."""
    tall, wide = min(height, round(width / ratio[0])), min(width, round(height * ratio[1]))
    return (height - tall) // 2, (width - wide) // 2, tall, wide
