"""Decoders: from the feature maps of encoders, coarse to fine, to a score for every class at every pixel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, int, int]
"""Channels, height and width of a feature map."""

NARROWEST = 16  # channels of the finest steps


class UNet(nn.Module):
    """The decoder of a U-Net (Ronneberger et al., MICCAI 2015; CMC section 4.3.1) over any feature maps.

    From the coarsest map on: up to the next finer one by bilinear interpolation, that map beside it, then twice 3x3
    convolution, batch norm, ReLU of `width` channels. Where the finest map is coarser than the picture, steps of twice
    the side and half the channels, without a map, lead to it. A 1x1 convolution gives the classes.

    shapes  of the maps, the coarsest first
    size    of the picture
    """

    def __init__(self, shapes: Sequence[Shape], size: int, classes: int, *, width: int = 64) -> None:
        super().__init__()
        self.sides = [tuple(shape[1:]) for shape in shapes]
        self.first = _block(shapes[0][0], width, kernel=1)
        self.steps = nn.ModuleList([_double(width + channels, width) for channels, _, _ in shapes[1:]])
        self.finer = nn.ModuleList()
        side, now = min(self.sides[-1]), width
        while side < size:
            side, narrow = min(2 * side, size), max(now // 2, NARROWEST)
            self.sides.append((side, side))
            self.finer.append(_block(now, narrow))
            now = narrow
        self.last = nn.Conv2d(now, classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        x = self.first(maps[0])
        for step, finer in zip(self.steps, maps[1:], strict=True):
            x = step(torch.cat([_to(x, finer.shape[2:]), finer], 1))
        for number, step in enumerate(self.finer, start=len(maps)):
            x = step(_to(x, self.sides[number]))
        scores: Tensor = self.last(x)
        return scores


class Linear(nn.Module):
    """A linear classifier of every place: all maps brought to the finest one's side, a batch norm without weights, and
    a 1x1 convolution, whose scores are interpolated to the picture.

    shapes  of the maps, the coarsest first
    """

    def __init__(self, shapes: Sequence[Shape], size: int, classes: int) -> None:
        super().__init__()
        self.size, channels = size, sum(shape[0] for shape in shapes)
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.classifier = nn.Conv2d(channels, classes, 1)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        side = maps[-1].shape[2:]
        together = torch.cat([_to(each, side) for each in maps], 1)
        return _to(self.classifier(self.norm(together)), (self.size, self.size))


DECODERS: dict[str, Callable[..., nn.Module]] = {"unet": UNet, "linear": Linear}
"""name -> (shapes of the maps, size of the picture, classes) -> the decoder."""


def _to(x: Tensor, side: Sequence[int]) -> Tensor:
    if x.shape[2:] == tuple(side):
        return x
    return F.interpolate(x, size=tuple(side), mode="bilinear", align_corners=False)


def _block(before: int, channels: int, *, kernel: int = 3) -> nn.Sequential:
    convolution = nn.Conv2d(before, channels, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))


def _double(before: int, channels: int) -> nn.Sequential:
    return nn.Sequential(_block(before, channels), _block(channels, channels))
