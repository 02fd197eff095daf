"""The same augmentation written with other libraries: what `data.py` and `photos.py` compare manyview with.

A row of `PEERS` gives a function of a file's path that makes all its views, or None if the library is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measure import version
from PIL import Image
from torch import Tensor, nn
from torchvision import transforms
from torchvision.transforms import v2

from manyview.views import IMAGENET, Augmentation

Make = Callable[[Path], list[Tensor]]


def torchvision_v1(augmentation: Augmentation) -> transforms.Compose:
    blur = [
        transforms.RandomApply(
            [transforms.GaussianBlur(augmentation.blur_kernel, augmentation.sigma)], augmentation.blur
        )
    ]
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(augmentation.size, augmentation.scale),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(*augmentation.jitter)], augmentation.jitter_p),
            transforms.RandomGrayscale(augmentation.grey),
            *(blur if augmentation.blur else []),
            transforms.ToTensor(),
            transforms.Normalize(*IMAGENET),
        ]
    )


def torchvision_v2(augmentation: Augmentation) -> v2.Compose:
    blur = [v2.RandomApply([v2.GaussianBlur(augmentation.blur_kernel, augmentation.sigma)], augmentation.blur)]
    return v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(augmentation.size, augmentation.scale, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*augmentation.jitter)], augmentation.jitter_p),
            v2.RandomGrayscale(augmentation.grey),
            *(blur if augmentation.blur else []),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*IMAGENET),
        ]
    )


def kornia_pipeline(augmentation: Augmentation) -> nn.Module:
    from kornia import augmentation as K

    mean, std = (torch.tensor(each) for each in IMAGENET)
    kernel = (augmentation.blur_kernel,) * 2
    blur = [K.RandomGaussianBlur(kernel, augmentation.sigma, p=augmentation.blur)] if augmentation.blur else []
    return nn.Sequential(
        K.RandomResizedCrop((augmentation.size, augmentation.size), augmentation.scale),
        K.RandomHorizontalFlip(),
        K.ColorJitter(*augmentation.jitter, p=augmentation.jitter_p),
        K.RandomGrayscale(p=augmentation.grey),
        *blur,
        K.Normalize(mean, std),
    )


def lightly_transform(augmentation: Augmentation) -> Callable[[Any], Any]:
    from lightly.transforms.simclr_transform import SimCLRTransform

    transform: Callable[[Any], Any] = SimCLRTransform(
        augmentation.size,
        cj_prob=augmentation.jitter_p,
        cj_strength=0.5,
        cj_hue=0.2,
        min_scale=0.2,
        gaussian_blur=augmentation.blur,
    )
    return transform


def albumentations_transform(augmentation: Augmentation) -> Callable[[Any], Tensor]:
    import albumentations as A
    import cv2
    from albumentations.pytorch import ToTensorV2

    cv2.setNumThreads(0)  # as its documentation advises beside workers
    factors = [(1 - x, 1 + x) for x in augmentation.jitter[:3]]
    turns, kernel = (-augmentation.jitter[3], augmentation.jitter[3]), (augmentation.blur_kernel,) * 2
    composed = A.Compose(
        [
            A.RandomResizedCrop((augmentation.size,) * 2, augmentation.scale),
            A.HorizontalFlip(),
            A.ColorJitter(*factors, turns, p=augmentation.jitter_p),
            A.ToGray(p=augmentation.grey),
            *([A.GaussianBlur(kernel, augmentation.sigma, p=augmentation.blur)] if augmentation.blur else []),
            A.Normalize(*IMAGENET),
            ToTensorV2(),
        ]
    )
    return lambda picture: composed(image=picture)["image"]


def with_pillow(transform: Callable[[Any], Any], views: int) -> Make:
    def make(path: Path) -> list[Tensor]:
        picture = Image.open(path).convert("RGB")
        return [transform(picture) for _ in range(views)]

    return make


def with_lightly(augmentation: Augmentation, views: int) -> Make:
    transform = lightly_transform(augmentation)

    def make(path: Path) -> list[Tensor]:
        picture = Image.open(path).convert("RGB")
        return [view for _ in range(views // 2) for view in transform(picture)]

    return make


def with_albumentations(augmentation: Augmentation, views: int) -> Make:
    import cv2

    transform = albumentations_transform(augmentation)

    def make(path: Path) -> list[Tensor]:
        picture: Any = cv2.imread(str(path), cv2.IMREAD_COLOR_RGB)  # quicker than to turn BGR round afterwards
        return [transform(picture) for _ in range(views)]

    return make


def with_albumentations_in_memory(augmentation: Augmentation, views: int, files: Sequence[Path]) -> Make:
    """What a user writes whose photos fit: all of them decoded beforehand, at full size, before workers are forked."""
    import cv2

    transform = albumentations_transform(augmentation)
    held: dict[Path, Any] = {path: cv2.imread(str(path), cv2.IMREAD_COLOR_RGB) for path in files}
    return lambda path: [transform(held[path]) for _ in range(views)]


def with_kornia(augmentation: Augmentation, views: int) -> Make:
    """In workers, one by one, since pictures of different sizes are no batch."""
    from torchvision.io import decode_image

    pipeline = kornia_pipeline(augmentation)

    def make(path: Path) -> list[Tensor]:
        picture = decode_image(str(path))[None].float() / 255
        return [pipeline(picture)[0] for _ in range(views)]

    return make


def peers(augmentation: Augmentation, views: int) -> dict[str, Make]:
    """By name, those that are installed."""
    found = {
        f"torchvision {version('torchvision')}, v1 on Pillow": with_pillow(torchvision_v1(augmentation), views),
        "torchvision, v2 on tensors": with_pillow(torchvision_v2(augmentation), views),
    }
    for name, make in (
        ("lightly", with_lightly),
        ("albumentations", with_albumentations),
        ("kornia", with_kornia),
    ):
        if version(name):
            found[f"{name} {version(name)}"] = make(augmentation, views)
    return found


def holding_peers(augmentation: Augmentation, views: int, files: Sequence[Path]) -> dict[str, Make]:
    """The fastest of them with the photos already decoded in memory."""
    if not version("albumentations"):
        return {}
    name = f"albumentations {version('albumentations')}, photos decoded beforehand"
    return {name: with_albumentations_in_memory(augmentation, views, files)}
