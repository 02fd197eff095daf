"""A jigsaw: one copy of a view as nine patches, one out of each cell of a grid, in a random order (PIRL)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from manyview.core.rng import key, uniform
from manyview.views.augmentation import Array, Augmentation

SIDE = 3  # of the grid, in cells
PATCHES = SIDE**2
NUMBERS = 3 * PATCHES  # numbers that one picture takes: two for the place of each patch, one for its turn


def jigsaw_of(copy: Augmentation) -> Augmentation:
    """The jigsaw of Misra & van der Maaten (CVPR 2020) beside copies of this size, as HobbitLong/PyContrast has it.

    For copies of 224 px: a crop of at least 60% becomes 255 px, flipped or not, and a patch of 64 px is taken anywhere
    in each cell of 85 px. Sizes are in proportion for others: copies of 32 px have cells of 12 and patches of 9. As
    there, the patches keep their colours.
    """
    cell, patch = (max(1, round(copy.size * pixels / 224)) for pixels in (85, 64))
    return Augmentation(SIDE * cell, scale=(0.6, 1.0), flip=copy.flip, patch=patch)


def shape_of(augmentation: Augmentation, n: int, channels: int) -> tuple[int, ...]:
    """Gives the shape of n pictures: (n, C, size, size), or of a jigsaw (n, 9, C, patch, patch)."""
    if augmentation.patch is None:
        return n, channels, augmentation.size, augmentation.size
    return n, PATCHES, channels, augmentation.patch, augmentation.patch


def cut_patches(planes: Tensor, augmentation: Augmentation, keys: Tensor) -> Tensor:
    """Cuts planes (C, n, size, size) into (n, 9, C, patch, patch), drawn from the pictures' keys (n,)."""
    assert augmentation.patch is not None
    corners = patch_corners(augmentation.size, augmentation.patch, uniform(key(keys, PATCHES), NUMBERS).numpy())
    top, left = torch.from_numpy(corners).to(planes.device).unbind(2)  # (n, 9) each
    pixels = torch.arange(augmentation.patch, device=planes.device)
    rows, columns = (top[:, :, None] + pixels)[:, :, :, None], (left[:, :, None] + pixels)[:, :, None, :]
    picture = torch.arange(len(corners), device=planes.device)[:, None, None, None]
    return planes[:, picture, rows, columns].permute(1, 2, 0, 3, 4)


def patch_corners(size: int, patch: int, u: Array) -> Array:
    """Top and left of the patches, (n, 9, 2), in the order in which they are seen, from (n, 27) numbers in [0, 1)."""
    cell, n = size // SIDE, len(u)
    within = (u[:, : 2 * PATCHES].reshape(n, PATCHES, 2) * (cell - patch + 1)).astype(np.int64)
    corners = within + cell * np.stack(np.divmod(np.arange(PATCHES), SIDE), 1)
    return np.take_along_axis(corners, u[:, 2 * PATCHES :].argsort(1, kind="stable")[:, :, None], 1)
