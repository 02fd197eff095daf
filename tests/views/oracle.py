"""Random pictures, and one view of one picture as torchvision's functions make it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torchvision.transforms.functional as tv
from torch import Tensor
from torchvision.transforms import InterpolationMode

from manyview.views import IMAGENET, Augmentation
from manyview.views.augmentation import AugmentationParams
from manyview.views.colour import TURNS
from manyview.views.rand_augment import FILL

OPERATIONS = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)


def pictures(n: int = 12, height: int = 40, width: int = 36, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 3, height, width), generator=generator, dtype=torch.uint8)


def oracle(image: Tensor, augmentation: Augmentation, params: AugmentationParams, row: int) -> Tensor:
    """One view of one picture by torchvision's functions on floats."""
    view = image.float() / 255
    if augmentation.scale is not None:
        view = tv.resized_crop(view, *params.box[row].tolist(), [augmentation.size] * 2, antialias=True)
    view = tv.hflip(view) if params.flip[row] else view
    if augmentation.grey_first and params.grey[row]:
        view = tv.rgb_to_grayscale(view, 3)
    for operation in TURNS[params.order[row]].tolist():
        if operation >= 0 and augmentation.jitter[operation]:
            view = OPERATIONS[operation](view, params.colour[row, operation].item())
    if not augmentation.grey_first and params.grey[row]:
        view = tv.rgb_to_grayscale(view, 3)
    if params.sigma[row] > 0:
        view = tv.gaussian_blur(view, [augmentation.blur_kernel] * 2, [params.sigma[row].item()] * 2)
    if params.solarise[row]:
        view = tv.solarize(view, 0.5)
    for operation, level in zip(params.operation[row].tolist(), params.level[row].tolist(), strict=True):
        view = view if operation < 0 else randomly(operation, view, level)
    normalised: Tensor = tv.normalize(view, *(list(each) for each in IMAGENET))
    return normalised


def randomly(number: int, picture: Tensor, level: float) -> Tensor:
    """One of RandAugment's operations by torchvision's functions; shears have their centre in the corner."""
    height, width = picture.shape[1:]
    whole, degrees = InterpolationMode.BILINEAR, math.degrees(math.atan(0.3 * level))
    moves: list[Callable[[Tensor], Tensor]] = [
        lambda x: tv.rotate(x, 30 * level, whole),
        lambda x: tv.affine(x, 0.0, [0, 0], 1.0, [degrees, 0.0], whole, center=[0, 0]),
        lambda x: tv.affine(x, 0.0, [0, 0], 1.0, [0.0, degrees], whole, center=[0, 0]),
        lambda x: tv.affine(x, 0.0, [-0.45 * width * level, 0], 1.0, [0.0, 0.0], whole),
        lambda x: tv.affine(x, 0.0, [0, -0.45 * height * level], 1.0, [0.0, 0.0], whole),
    ]
    if number < 3:
        still = [picture, tv.autocontrast(picture), tv.adjust_sharpness(picture, 0.1 + 1.8 * abs(level))]
        done: Tensor = still[number]
        return done
    move, fill = moves[number - 3], torch.tensor(FILL).view(3, 1, 1)
    return move(picture) + (1 - move(torch.ones_like(picture))) * fill
