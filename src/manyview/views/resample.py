"""Crop, flip and resize in one resampling: bilinear, antialiased where it shrinks, as torchvision's resized_crop.

Two ways to the same picture. A batch of small pictures of one size: each view is a product rows x picture x columns,
with one weight matrix per picture and axis, where the box, the flip and the filter are all in the weights. A single
large picture: torch's own resize of the box, which keeps to uint8 on a CPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.views.look import Look


def crop_batch(images: Tensor, look: Look, box: Tensor, flip: Tensor) -> Tensor:
    """Planes (C, n, size, size) of pictures (n, C, H, W) in their own range, float32."""
    n, channels, height, width = images.shape
    rows = weights(*_axis(look, box, 0), size=look.size, length=height)
    columns = weights(*_axis(look, box, 1), size=look.size, length=width)
    columns = torch.where(flip[:, None, None], columns.flip(1), columns).to(images.device)
    pixels = torch.empty(n, height, channels, width, device=images.device).copy_(images.permute(0, 2, 1, 3))
    shrunk = torch.bmm(rows.to(images.device), pixels.view(n, height, channels * width))
    shrunk = torch.bmm(shrunk.view(n, look.size * channels, width), columns.transpose(1, 2))
    return shrunk.view(n, look.size, channels, look.size).permute(2, 0, 1, 3).contiguous()


def weights(start: Tensor, step: Tensor, low: Tensor, high: Tensor, *, size: int, length: int) -> Tensor:
    """(n, size, length) of a triangle filter along one axis.

    The centre of output pixel j lies at start + (j + 1/2) step in the picture; only pixels in [low, high) count. Where
    step > 1 the triangle widens with it, which is the antialiasing.
    """
    centre = start[:, None] + (torch.arange(size) + 0.5) * step[:, None]
    pixel = torch.arange(length) + 0.5
    distance = (pixel - centre[:, :, None]).abs_().div_(step.clamp(min=1)[:, None, None])
    filtered = distance.neg_().add_(1).clamp_(min=0)
    filtered *= ((pixel > low[:, None]) & (pixel < high[:, None]))[:, None]
    return filtered.div_(filtered.sum(2, keepdim=True))


def crop_one(image: Tensor, look: Look, box: Tensor, flip: bool, *, nearest: bool = False) -> Tensor:
    """(C, size, size) of one picture (C, H, W), in its dtype."""
    if look.scale is None:
        view = _middle(image, look, nearest)
    else:
        top, left, height, width = box.tolist()
        view = _resize(image[:, top : top + height, left : left + width], look.size, look.size, nearest)
    return view.flip(-1) if flip else view


def _resize(image: Tensor, height: int, width: int, nearest: bool) -> Tensor:
    if image.shape[1:] == (height, width):
        return image
    if nearest:
        return F.interpolate(image[None], (height, width), mode="nearest-exact")[0]
    return F.interpolate(image[None], (height, width), mode="bilinear", antialias=True)[0]


def _middle(image: Tensor, look: Look, nearest: bool) -> Tensor:
    height, width = _resized(look, *image.shape[1:])
    image = _resize(image, height, width, nearest)
    top, left = round((height - look.size) / 2), round((width - look.size) / 2)
    return image[:, top : top + look.size, left : left + look.size]


def _resized(look: Look, height: int, width: int) -> tuple[int, int]:
    """As torchvision's Resize: the short side becomes `resize`, the long one is cut to whole pixels."""
    short = look.resize or look.size
    if height <= width:
        return short, int(short * width / height)
    return int(short * height / width), short


def _axis(look: Look, box: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """start, step, low, high of `weights` for rows (0) or columns (1)."""
    start, extent = box[:, axis].float(), box[:, 2 + axis].float()
    if look.scale is not None:
        return start, extent / look.size, start, start + extent
    height, width = int(box[0, 2]), int(box[0, 3])
    resized = _resized(look, height, width)[axis]
    step = extent / resized
    return round((resized - look.size) / 2) * step, step, start, extent
