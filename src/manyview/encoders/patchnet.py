"""PatchNet, a small residual network that two cores can train."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders.backbone import Backbone, module_outputs

WIDTHS = (32, 64, 128, 256)
BLOCKS = (1, 1, 1, 1)


class PatchNet(nn.Module):
    """A stem that reads overlapping 4x4 patches at every second pixel, then stages of residual blocks, each at half the
    resolution of the one before, then the mean over places: (B, C, H, W) to (B, widths[-1]), for images of any size.

    ResNet's basic blocks (He et al., CVPR 2016) with the shortcut of ResNet-D (He et al., CVPR 2019: mean, then 1x1
    convolution). Narrow where the maps are large, wide where they are small: on a CPU, time goes where the pixels are.
    Fastest in channels_last memory format. Weights are drawn as torch draws them: smaller than ResNet's, so that before
    batch norm a learning rate goes further.
    """

    def __init__(self, channels: int, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        width = widths[0]
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        for number, (wider, depth) in enumerate(zip(widths, blocks, strict=True), start=1):
            stride = 1 if number == 1 else 2
            first = Block(width, wider, stride)
            self.add_module(f"stage{number}", nn.Sequential(first, *(Block(wider, wider, 1) for _ in range(depth - 1))))
            width = wider

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.children():
            x = stage(x)
        return x.mean((2, 3))


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut. The last batch norm starts at 0, and the block as its shortcut alone."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        nn.init.zeros_(self.norm2.weight)
        self.shortcut = nn.Identity() if channels == width and stride == 1 else _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x), inplace=True)


def build(channels: int, size: int, widths: Sequence[int] = WIDTHS, blocks: Sequence[int] = BLOCKS) -> Backbone:
    """Builds a PatchNet; widths and blocks have one number per stage each."""
    if len(widths) != len(blocks) or min((*widths, *blocks), default=0) < 1:
        raise UserError("widths and blocks", f"expected a number of at least 1 per stage, got {widths} and {blocks}")
    network = PatchNet(channels, widths, blocks)
    return Backbone(network, module_outputs([name for name, _ in network.named_children()]))


def _shortcut(channels: int, width: int, stride: int) -> nn.Sequential:
    parts = [nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)]
    return nn.Sequential(*([] if stride == 1 else [nn.AvgPool2d(stride, ceil_mode=True)]), *parts)
