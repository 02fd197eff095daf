"""Random pictures, and one view of one picture as torchvision's functions make it."""

from __future__ import annotations

import torch
import torchvision.transforms.functional as tv
from torch import Tensor

from manyview.views import IMAGENET, Augmentation
from manyview.views.augmentation import AugmentationParams
from manyview.views.colour import _TURNS

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
    for operation in _TURNS[params.order[row]].tolist():
        if operation >= 0 and augmentation.jitter[operation]:
            view = OPERATIONS[operation](view, params.colour[row, operation].item())
    if not augmentation.grey_first and params.grey[row]:
        view = tv.rgb_to_grayscale(view, 3)
    if params.sigma[row] > 0:
        view = tv.gaussian_blur(view, [augmentation.blur_kernel] * 2, [params.sigma[row].item()] * 2)
    if params.solarise[row]:
        view = tv.solarize(view, 0.5)
    normalised: Tensor = tv.normalize(view, *(list(each) for each in IMAGENET))
    return normalised
