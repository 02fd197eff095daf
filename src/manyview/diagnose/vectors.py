"""What every figure does first: look at the vectors it was given, and make them unit length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError

SHAPES = {1: "(d,)", 2: "(n, d)", 3: "(n, a, d)"}


def checked(name: str, x: Tensor, *, dims: int = 2, least: int = 1) -> Tensor:
    """Floats of so many dimensions and at least so many rows, all of them numbers; in float32 or wider, no gradient."""
    if not isinstance(x, Tensor) or x.dim() != dims or not x.is_floating_point():
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise UserError(None, f"{name}: expected floats {SHAPES[dims]}, got {got}")
    if len(x) < least or not x.numel():
        raise UserError(None, f"{name}: expected {least} or more vectors, got {tuple(x.shape)}; give more")
    if not torch.isfinite(x.sum(dtype=torch.float64)):
        raise UserError(None, f"{name}: holds NaN or infinite numbers; the encoder that made it has diverged")
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


def unit(name: str, x: Tensor, *, dims: int = 2, least: int = 1) -> Tensor:
    """`checked`, and of length 1."""
    return F.normalize(checked(name, x, dims=dims, least=least), dim=-1)


def same_length(name: str, x: Tensor, of: Tensor) -> None:
    """That vectors can be compared with others."""
    if x.shape[-1] != of.shape[-1]:
        raise UserError(None, f"{name}: expected vectors of length {of.shape[-1]}, got {tuple(x.shape)}")
