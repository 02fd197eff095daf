"""Numbers that evaluating and embedding are given alike, refused before any work is done."""

from __future__ import annotations

from manyview.core.errors import UserError


def check_amounts(*, batch_size: int, workers: int | None = None, seed: int = 0) -> None:
    """Checks how many images are embedded at a time, how many processes read them, and the seed of weights."""
    if batch_size < 1:
        raise UserError("batch_size", f"expected 1 or more images, got {batch_size}")
    if workers is not None and workers < 0:
        raise UserError("workers", f"expected 0 or more, got {workers}")
    if not 0 <= seed < 1 << 63:
        raise UserError("seed", f"expected a number from 0 to 2^63 - 1, got {seed}")
