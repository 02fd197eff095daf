"""Dense convolutions: those whose kernel covers the whole map are computed as the dense layers that they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DenseConv2d(nn.Conv2d):
    """A convolution that on a CPU is a dense layer wherever each of its outputs sees the whole map.

    That is so for 3x3 kernels, padded by 1, on maps of 1x1 and 2x2: the last stages of a ResNet on images of 32 px. The
    numbers are the same up to rounding. A convolution also multiplies the padding there, 36 products for every 16 that
    count on 2x2 and 9 for each on 1x1, and CPU libraries compute its weights' gradient tens of times slower.
    """

    def forward(self, input: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        axes = zip(input.shape[2:], self.kernel_size, self.stride, self.padding, strict=True)
        starts = [_starts(*axis) for axis in axes]
        if input.device.type != "cpu" or not all(starts):
            return super().forward(input)
        return _dense(input, self.weight, self.bias, *starts)


def dense_convolutions(module: nn.Module) -> None:
    """Makes every plain Conv2d inside a DenseConv2d; parameters and state dict stay what they are."""
    for part in module.modules():
        if type(part) is nn.Conv2d and _plain(part):
            part.__class__ = DenseConv2d


def _plain(conv: nn.Conv2d) -> bool:
    whole = conv.groups == 1 and set(conv.dilation) == {1} and max(conv.kernel_size) > 1
    return whole and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _starts(size: int, kernel: int, stride: int, pad: int) -> list[int]:
    """The places in the kernel where the map begins, an output each; none where some output does not see all of it."""
    outputs = (size + 2 * pad - kernel) // stride + 1
    starts = [pad - stride * output for output in range(outputs)]
    return starts if pad + size <= kernel and starts and starts[-1] >= 0 else []


def _dense(x: Tensor, weight: Tensor, bias: Tensor | None, down: list[int], across: list[int]) -> Tensor:
    """(B, C, H, W) to (B, K, H', W') in channels_last, where rows and columns of the result begin in the kernel."""
    height, width = x.shape[2:]
    taps = weight.permute(0, 2, 3, 1)
    windows = [taps[:, top : top + height, left : left + width].flatten(1) for top in down for left in across]
    biases = None if bias is None else bias.repeat(len(windows))
    output = F.linear(x.permute(0, 2, 3, 1).flatten(1), torch.cat(windows), biases)
    return output.view(len(x), len(down), len(across), -1).permute(0, 3, 1, 2)
