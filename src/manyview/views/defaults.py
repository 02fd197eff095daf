"""How large views are, and which augmentation they get, where nobody says."""

from __future__ import annotations

SIZES = (32, 128)  # pixels, at least and at most
UNBLURRED_SIZE = 64  # pixels up to which pictures are not blurred


def usual_size(side: int, largest: int = SIZES[1]) -> int:
    """The size of views of pictures whose shorter side usually is `side`: a multiple of 32."""
    return min(max(SIZES[0], 32 * round(side / 32)), largest)


def usual_augmentation(size: int) -> str:
    """The augmentation recipe for views of a size."""
    return "custom" if size <= UNBLURRED_SIZE else "moco-v2"
