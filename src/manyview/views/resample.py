"""Crop, flip and resize in one resampling: bilinear, antialiased where it shrinks, as torchvision's resized_crop.

Two ways to the same picture. A batch of small pictures of one size: each view is a product rows x picture x columns,
with one weight matrix per picture and axis, where the box, the flip and the filter are all in the weights. A single
large picture: torch's own resize of the box, which keeps to uint8 on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.parallel import scratch
from manyview.views.augmentation import Array, Augmentation, AugmentationParams
from manyview.views.view import Modality

PRODUCT_SIDE = 128  # on a CPU, sides up to this are resampled as matrix products, larger ones one by one


def crops(
    raw: Tensor,
    augmentation: Augmentation,
    params: AugmentationParams,
    reference: Sequence[int],
    modality: Modality,
    *,
    holes: bool = False,
) -> Tensor:
    """Crops pictures to planes, in [0, 1] where they are pictures; with `holes` NaN where there is no data."""
    images = modality.filled(raw)
    unit, boxes = modality.unit(images), scaled_boxes(params.box, reference, images.shape[2:])
    mixed = images.dtype == torch.uint8 and not (modality.nearest or modality.vectors)  # a product would spread a NaN
    if mixed and (images.device.type != "cpu" or max(images.shape[2:]) <= PRODUCT_SIDE):
        planes = crop_batch(images, augmentation, boxes, params.flip, unit=unit)
    else:
        planes = crop_each(images, augmentation, boxes, params.flip, modality).float().mul_(unit)
    return with_holes(planes, raw, augmentation, boxes, params.flip, modality) if holes else planes


def with_holes(
    planes: Tensor, raw: Tensor, augmentation: Augmentation, boxes: Array, flip: Array, modality: Modality
) -> Tensor:
    """Crops (C, n, size, size) of raw pictures with NaN where any pixel that they are mixed of holds no data.

    Those of 8 bits, which have no NaN, become floats in [0, 1]. Pictures that take colours stay as they are.
    """
    holes = None if modality.colour else modality.holes(raw)
    if holes is None:
        return planes
    share = crop_each(holes.float(), augmentation, boxes, flip, Modality(nearest=modality.nearest))
    floats = planes if planes.is_floating_point() else planes.float().mul_(modality.unit(planes))
    return floats.masked_fill(share > 0, torch.nan)


def crop_batch(images: Tensor, augmentation: Augmentation, box: Array, flip: Array, *, unit: float = 1.0) -> Tensor:
    """Crops pictures (n, C, H, W) to planes (C, n, size, size), times `unit`, float32, in the scratch space "b"."""
    n, channels, height, width = images.shape
    rows, columns = (
        weights(*axis, size=augmentation.size, length=length, device=images.device)
        for axis, length in zip(_axes(augmentation, box, flip), (height, width), strict=True)
    )
    space = partial(scratch, device=images.device)
    pixels = space("a", n, height, channels, width).copy_(images.permute(0, 2, 1, 3))
    lower = space("b", n, augmentation.size, channels * width)
    torch.bmm(rows.mul_(unit), pixels.view(n, height, channels * width), out=lower)
    small = space("a", n, augmentation.size * channels, augmentation.size)
    torch.bmm(lower.view(n, augmentation.size * channels, width), columns.transpose(1, 2), out=small)
    planes = space("b", channels, n, augmentation.size, augmentation.size)
    return planes.copy_(small.view(n, augmentation.size, channels, augmentation.size).permute(2, 0, 1, 3))


def weights(
    start: Array, step: Array, low: Array, high: Array, *, size: int, length: int, device: torch.device
) -> Tensor:
    """Weights (n, size, length) of a triangle filter along one axis.

    The centre of output pixel j lies at start + (j + 1/2) step in the picture; only pixels in [low, high) of it count.
    A negative step starts at the other end, which is a flip. Where the step is more than 1 the triangle widens with it,
    which is the antialiasing.
    """
    centres = start[:, None] + (np.arange(size) + 0.5) * step[:, None]
    pixels = np.arange(length) + 0.5
    inside = (pixels > low[:, None]) & (pixels < high[:, None])
    narrow = -1 / np.maximum(abs(step), 1)
    centre, pixel, counts, slope = (
        torch.from_numpy(each.astype(np.float32)).to(device) for each in (centres, pixels, inside, narrow)
    )
    filtered = (pixel - centre[:, :, None]).abs_().mul_(slope[:, None, None]).add_(1).clamp_(min=0)
    filtered.mul_(counts[:, None])
    return filtered.mul_(1 / filtered.sum(2, keepdim=True))


def crop_each(images: Tensor, augmentation: Augmentation, boxes: Array, flip: Array, modality: Modality) -> Tensor:
    """Crops pictures (n, C, H, W) one by one to planes (C, n, size, size) in their dtype; vectors turn with them."""
    crops = [
        crop_one(image, augmentation, box, bool(turned), nearest=modality.nearest)
        for image, box, turned in zip(images, boxes, flip, strict=True)
    ]
    planes = torch.stack(crops, 1)
    if modality.vectors:
        turn_vectors_(planes, augmentation, boxes, flip, lengths=modality.vectors == "displacements")
    return planes


def crop_one(image: Tensor, augmentation: Augmentation, box: Array, flip: bool, *, nearest: bool = False) -> Tensor:
    """Crops one picture (C, H, W) to (C, size, size), in its dtype."""
    size = augmentation.size
    if augmentation.scale is None:
        height, width = _resized(augmentation, *image.shape[1:])
        top, left = round((height - size) / 2), round((width - size) / 2)
        view = _resize(image, height, width, nearest)[:, top : top + size, left : left + size]
    else:
        top, left, height, width = box.tolist()
        view = _resize(image[:, top : top + height, left : left + width], size, size, nearest)
    return view.flip(-1) if flip else view


def crop_picture(image: Tensor, augmentation: Augmentation, box: Array, flip: bool) -> Array:
    """Crops one picture (3, H, W) of 8 bits to (size, size, 3), contiguous, in memory of its own."""
    resized = crop_one(image, augmentation, box, False)
    crop: Array = resized.permute(1, 2, 0).numpy()
    if flip:
        return np.asarray(cv2.flip(crop, 1))
    own = resized.untyped_storage().data_ptr() != image.untyped_storage().data_ptr()
    return np.ascontiguousarray(crop) if own else np.array(crop, order="C")


def finest_step(augmentation: Augmentation, box: Sequence[int]) -> float:
    """How many pixels of the picture make one of the view, along the axis where they are fewest; a patch takes 1."""
    if augmentation.scale is None:
        resized = _resized(augmentation, box[2], box[3])
        return min(box[2] / resized[0], box[3] / resized[1])
    return min(box[2], box[3]) / augmentation.size


def turn_vectors_(planes: Tensor, augmentation: Augmentation, box: Array, flip: Array, *, lengths: bool) -> None:
    """Turns the vectors (2 or 3, n, size, size) of crops with the picture, in place; x and y come first.

    A flip changes the sign of x, which in uint8 lies about the middle of 0 to 255. With `lengths` they are in pixels,
    and grow as these do.
    """
    x, y = planes[0], planes[1]
    turned = torch.from_numpy(flip).to(planes.device)[:, None, None]
    x.copy_(torch.where(turned, 255 - x if x.dtype == torch.uint8 else -x, x))
    if lengths:
        for axis, (_, step, _, _) in zip((y, x), _axes(augmentation, box, flip), strict=True):
            axis.mul_(torch.from_numpy(1 / abs(step)).to(axis)[:, None, None])


def _resize(image: Tensor, height: int, width: int, nearest: bool) -> Tensor:
    if image.shape[1:] == (height, width):
        return image
    if nearest:
        return F.interpolate(image[None], (height, width), mode="nearest-exact")[0]
    batch = image.permute(1, 2, 0)[None].permute(
        0, 3, 1, 2
    )  # so that torch sees that channels may lie last: a third less
    return F.interpolate(batch, (height, width), mode="bilinear", antialias=True)[0]


def _resized(augmentation: Augmentation, height: int, width: int) -> tuple[int, int]:
    """Size as after torchvision's Resize: the short side becomes `resize`, the long one is cut to whole pixels."""
    short = augmentation.resize or augmentation.size
    if height <= width:
        return short, int(short * width / height)
    return int(short * height / width), short


def _axes(augmentation: Augmentation, box: Array, flip: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Gives start, step, low, high of `weights`, for rows and for columns."""
    for axis, turned in enumerate((np.zeros_like(flip), flip)):
        low, extent = box[:, axis].astype(np.float64), box[:, 2 + axis]
        if augmentation.scale is None:
            resized = _resized(augmentation, int(box[0, 2]), int(box[0, 3]))[axis]
            step = extent / resized
            start = round((resized - augmentation.size) / 2) * step
        else:
            start, step = low, extent / augmentation.size
        yield (
            np.where(turned, start + augmentation.size * step, start),
            np.where(turned, -step, step),
            low,
            low + extent,
        )


def scaled_boxes(box: Array, reference: Sequence[int], size: Sequence[int]) -> Array:
    """Moves boxes on a picture of the reference's size to one of another size."""
    if tuple(reference) == tuple(size):
        return box
    factor = np.array(size) / np.array(reference)
    extent = np.maximum(np.rint(box[:, 2:] * factor), 1)
    corner = np.minimum(np.rint(box[:, :2] * factor), np.array(size) - extent)
    return np.concatenate([corner, extent], 1).astype(np.int64)
