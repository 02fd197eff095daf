"""Two copies of a batch, for the losses that compare dimensions, and a comparison of value and gradients."""

from __future__ import annotations

import torch
from torch import Tensor


def both(n: int = 5, d: int = 4) -> tuple[Tensor, Tensor]:
    """Two copies that agree somewhat, with means of their own."""
    generator = torch.Generator().manual_seed(2)
    x, noise = torch.randn(2, n, d, generator=generator, dtype=torch.float64)
    return (x + 0.7).requires_grad_(), (x + 0.5 * noise - 0.3).detach().requires_grad_()


def same(found: Tensor, expected: Tensor, leaves: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    by = [torch.autograd.grad(each, leaves, retain_graph=True) for each in (found, expected)]
    for one, other in zip(*by, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        assert one.abs().max() > 1e-6
