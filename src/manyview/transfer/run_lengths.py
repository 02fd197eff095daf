"""The masks of objects as COCO writes them, polygons and run lengths: checked, decoded into pixels, and encoded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError


def evaluator() -> Any:
    """The module of the published evaluator, which `manyview[dense]` installs."""
    try:
        import faster_coco_eval
    except ImportError:
        line = 'boxes, masks and keypoints need faster-coco-eval; pip install "manyview[dense]"'
        raise UserError(None, line) from None
    return faster_coco_eval


def decode_mask(segmentation: Any, height: int, width: int) -> Tensor:
    """Decodes polygons or run lengths into a mask (height, width) of zeros and ones, uint8. They must be flawless."""
    return torch.from_numpy(_api().decode(run_lengths(segmentation, height, width)))


def encode_mask(mask: Tensor) -> dict[str, Any]:
    """Encodes a mask (height, width) as compressed run lengths, as JSON can hold them."""
    found = _api().encode(np.asfortranarray(mask.to(torch.uint8).numpy()))
    return {"size": [int(side) for side in found["size"]], "counts": _text(found["counts"])}


def run_lengths(segmentation: Any, height: int, width: int) -> dict[str, Any]:
    """Polygons or run lengths of any kind as compressed run lengths."""
    if isinstance(segmentation, list):
        return dict(_api().merge(_api().frPyObjects(segmentation, height, width)))
    if isinstance(segmentation["counts"], list):
        return dict(_api().frPyObjects(segmentation, height, width))
    return dict(segmentation)


def has_flaw(segmentation: Any, height: int, width: int) -> bool:
    """Whether something is no mask of an image of this size.

    The evaluator's own code trusts what it is given: run lengths of another sum would be written past the image.
    """
    if isinstance(segmentation, list):
        return not segmentation or any(_polygon_has_flaw(each, height, width) for each in segmentation)
    if not isinstance(segmentation, dict) or segmentation.get("size") != [height, width]:
        return True
    counts = segmentation.get("counts")
    lengths = _uncompressed(counts) if isinstance(counts, str) else counts
    if not isinstance(lengths, list) or not all(type(each) is int and each >= 0 for each in lengths):
        return True
    return sum(lengths) != height * width


def _polygon_has_flaw(polygon: Any, height: int, width: int) -> bool:
    """A polygon has three corners or more, and stays within the image and one more on each side of it."""
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
        return True
    if not all(type(each) in (int, float) and math.isfinite(each) for each in polygon):
        return True
    across, down = polygon[::2], polygon[1::2]
    outside = min(across) < -width or max(across) > 2 * width or min(down) < -height or max(down) > 2 * height
    return bool(outside)


def _uncompressed(counts: str) -> list[int] | None:
    """The run lengths in COCO's text: groups of 5 bits, the sixth says that another follows; from the fourth on,
    differences to the length two before. None of a text that is none."""
    lengths: list[int] = []
    value = shift = 0
    for character in counts:
        group = ord(character) - 48
        if not 0 <= group < 64 or shift > 30:
            return None
        value |= (group & 31) << shift
        shift += 5
        if group & 32:
            continue
        value -= (1 << shift) if group & 16 else 0
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = shift = 0
    return None if shift else lengths


def _text(counts: Any) -> str:
    return counts.decode() if isinstance(counts, bytes) else str(counts)


def _api() -> Any:
    evaluator()
    from faster_coco_eval.core import mask

    return mask
