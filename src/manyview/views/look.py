"""What may happen to a picture on its way to a view: one `Look` a view, and the numbers drawn for each picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TRIES = 10  # how often torchvision's RandomResizedCrop draws a box before it takes the central one
GEOMETRY, PHOTOMETRY = 2 * TRIES + 3, 10  # numbers that one picture takes
ORDERS = 24  # of brightness, contrast, saturation and hue


@dataclass(frozen=True)
class Look:
    """How one view is made: crop, flip, colour, in this order; the names are torchvision's.

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

    def __post_init__(self) -> None:
        _check(self)

    @property
    def blur_kernel(self) -> int:
        return self.kernel or max(3, self.size // 10 | 1)


class Drawn(NamedTuple):
    """What was drawn for n pictures under one look."""

    box: Tensor  # (n, 4) int64: top, left, height, width, in pixels of the picture
    flip: Tensor  # (n,) bool
    colour: Tensor  # (n, 4) factors of brightness, contrast, saturation; hue in turns
    order: Tensor  # (n,) which of the 24 orders; -1: no jitter
    grey: Tensor  # (n,) bool
    sigma: Tensor  # (n,) 0: no blur
    solarise: Tensor  # (n,) bool


def draw(look: Look, g: Tensor, p: Tensor, height: Tensor, width: Tensor) -> Drawn:
    """What happens to n pictures of the given sizes, from numbers in [0, 1): (n, 23) for geometry, (n, 10) for colour.

    Pictures that show the same thing through different sensors share the geometric numbers.
    """
    low, high = _bounds(look.jitter)
    colour = low + (high - low) * p[:, 0:4]
    active = (p[:, 4] < look.jitter_p) & any(look.jitter)
    order = torch.where(active, (p[:, 5] * ORDERS).long(), -1)
    sigma = look.sigma[0] + (look.sigma[1] - look.sigma[0]) * p[:, 6]
    return Drawn(
        box=random_boxes(g, height, width, look.scale, look.ratio) if look.scale else _whole(height, width),
        flip=g[:, 22] < look.flip,
        colour=colour,
        order=order,
        grey=p[:, 7] < look.grey,
        sigma=torch.where(p[:, 8] < look.blur, sigma, 0.0),
        solarise=p[:, 9] < look.solarise,
    )


def random_boxes(
    u: Tensor, height: Tensor, width: Tensor, scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """torchvision's RandomResizedCrop.get_params for n pictures at once, from (n, 22 or more) uniform numbers."""
    area = (height * width).double()[:, None] * (scale[0] + (scale[1] - scale[0]) * u[:, :TRIES])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * u[:, TRIES : 2 * TRIES])
    w, h = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()  # (n, TRIES)
    fits = (w > 0) & (h > 0) & (w <= width[:, None]) & (h <= height[:, None])
    first = fits.int().argmax(1, keepdim=True)
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    top = (u[:, 2 * TRIES] * (height - h + 1)).long()
    left = (u[:, 2 * TRIES + 1] * (width - w + 1)).long()
    drawn = torch.stack([top, left, h, w], 1)
    return torch.where(fits.any(1, keepdim=True), drawn, _central(height, width, ratio))


def _central(height: Tensor, width: Tensor, ratio: tuple[float, float]) -> Tensor:
    """The largest box in the middle whose ratio is allowed: where no try fitted."""
    h = torch.minimum(height, (width / ratio[0]).round().long())
    w = torch.minimum(width, (height * ratio[1]).round().long())
    return torch.stack([(height - h) // 2, (width - w) // 2, h, w], 1)


def _whole(height: Tensor, width: Tensor) -> Tensor:
    zero = torch.zeros_like(height)
    return torch.stack([zero, zero, height, width], 1)


def _bounds(jitter: tuple[float, float, float, float]) -> tuple[Tensor, Tensor]:
    strength = torch.tensor(jitter, dtype=torch.float64)
    centre = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    low = centre - strength
    low[:3].clamp_(min=0)
    return low, centre + strength


def _check(look: Look) -> None:
    if look.size < 1:
        raise ValueError(f"size={look.size}: the side of a view is at least 1 pixel")
    for name in ("flip", "jitter_p", "grey", "blur", "solarise"):
        if not 0 <= getattr(look, name) <= 1:
            raise ValueError(f"{name}={getattr(look, name)} is a chance: give a number between 0 and 1")
    if look.scale is not None and not 0 < look.scale[0] <= look.scale[1] <= 1:
        raise ValueError(f"scale={look.scale}: the share of the picture that a crop covers, 0 < low <= high <= 1")
    if not 0 < look.ratio[0] <= look.ratio[1]:
        raise ValueError(f"ratio={look.ratio}: width / height of a crop, 0 < low <= high")
    if min(look.jitter) < 0 or look.jitter[3] > 0.5:
        raise ValueError(f"jitter={look.jitter}: strengths are at least 0, and the last, hue, at most 0.5")
    if not 0 < look.sigma[0] <= look.sigma[1]:
        raise ValueError(f"sigma={look.sigma}: the blur's width in pixels, 0 < low <= high")
    if look.kernel is not None and (look.kernel < 1 or look.kernel % 2 == 0):
        raise ValueError(f"kernel={look.kernel}: the side of the blur's kernel is odd")
    if look.resize is not None and (look.scale is not None or look.resize < look.size):
        raise ValueError(f"resize={look.resize}: only with scale=None, and at least size={look.size}")
