"""Strided crops: overlapping patches of an image that a network sees one by one, as CPC does (CMC D.1)."""

from torch import Tensor

from manyview.core.errors import UserError


def strided_crops(images: Tensor, side: int) -> Tensor:
    """Crops of images (B, C, H, W) at every half of their side: (B, h, w, C, side, side).

    16 of 64 pixels give 7 x 7 crops that overlap by 8. Pixels at the right and below that fill no crop are left out.
    """
    stride = side // 2
    crops = images.unfold(2, side, stride).unfold(3, side, stride)  # (B, C, h, w, side, side)
    return crops.permute(0, 2, 3, 1, 4, 5)


def check_crop(crop: object, size: int) -> None:
    """Refuses crops that an image of this size has not."""
    if not isinstance(crop, int) or not 2 <= crop <= size:
        raise UserError("crop", f"expected a whole number of pixels from 2 to {size}, the images' size, got {crop!r}")
