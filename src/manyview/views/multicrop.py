"""Multi-crop: besides the large crops of a picture some small ones, which cost less (SwAV, DINO)."""

from __future__ import annotations

from dataclasses import replace

from manyview.views.pipeline import ViewPipeline

SMALL_SCALE = (0.05, 0.4)  # of DINO and of CACR's code; SwAV's is (0.05, 0.14)


def with_small(
    pipeline: ViewPipeline,
    count: int,
    size: int,
    scale: tuple[float, float] = SMALL_SCALE,
    blur: float | None = None,
) -> ViewPipeline:
    """The pipeline with `count` small crops of `size` pixels after its copies, whose draws stay as they were.

    A small crop covers a share `scale` of the picture, and is coloured as the first copy; with `blur` that is the
    chance that it is blurred.

    >>> pipeline = with_small(AUGMENTATIONS["moco-v3"](224), 8, 96, blur=0.5)    # DINO's 2 + 8 crops
    """
    first = pipeline.augmentations[0]
    small = replace(first, size=size, scale=scale, kernel=None, blur=first.blur if blur is None else blur)
    return replace(pipeline, augmentations=[*pipeline.augmentations, *[small] * count])


def usual_small_size(size: int) -> int:
    """The size of small crops beside large ones of `size` pixels, where nobody says: 96 of 224, a multiple of 8."""
    return max(8, 8 * round(size * 96 / 224 / 8))
