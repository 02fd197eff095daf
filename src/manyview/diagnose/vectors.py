"""What every figure does first with embeddings: check them, make them unit length, draw batches of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order

SHAPES = {1: "(d,)", 2: "(n, d)", 3: "(n, a, d)"}


def checked(name: str, x: Tensor, *, dims: int = 2, least: int = 1) -> Tensor:
    """Checks that these are finite floats of so many dimensions and rows; gives float32 or wider, without gradient."""
    if not isinstance(x, Tensor) or x.dim() != dims or not x.is_floating_point():
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise UserError(name, f"expected floats {SHAPES[dims]}, got {got}")
    if len(x) < least or not x.numel():
        raise UserError(name, f"expected {least} or more vectors, got {tuple(x.shape)}; give more")
    if not torch.isfinite(x.sum(dtype=torch.float64)):
        raise UserError(name, "holds NaN or infinite numbers; the encoder that made it has diverged")
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def unit(name: str, x: Tensor, *, dims: int = 2, least: int = 1) -> Tensor:
    """Checks vectors as `checked` does and makes them of length 1."""
    return F.normalize(checked(name, x, dims=dims, least=least), dim=-1)


def same_length(name: str, x: Tensor, of: Tensor) -> None:
    """Refuses vectors that cannot be compared with others because their length differs."""
    if x.shape[-1] != of.shape[-1]:
        raise UserError(name, f"expected vectors of length {of.shape[-1]}, got {tuple(x.shape)}")


def draw_batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Gives rows 0 to count - 1 in a drawn order, `size` at a time; a last batch that is not full is left out."""
    if not 2 <= size <= count:
        raise UserError("size", f"a batch is of 2 to the {count} images that there are, got {size}")
    ordered = order(key(seed, torch.arange(count)))
    return (ordered[start : start + size] for start in range(0, count - size + 1, size))
