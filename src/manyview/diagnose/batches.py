"""What the size of a batch does to the gradient of InfoNCE: the coupling q_B of DCL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.core.rng import key, order
from manyview.diagnose.vectors import unit
from manyview.losses.checks import check_positive
from manyview.losses.streaming import Stream


@torch.no_grad()
def couplings(
    first: Tensor, second: Tensor, sizes: Sequence[int], *, temperature: float = 0.1, seed: int = 0
) -> dict[int, Tensor]:
    """q_B of each image in a batch, by the batch's size: its distribution, for DCL's argument about small batches.

    q_B,i = U_i / ( exp(x_i.y_i / t) + U_i ),  U_i = sum over j != i of exp(x_i.x_j / t) + exp(x_i.y_j / t)

    first (n, d) = x = z^(1), second (n, d) = y = z^(2), two looks at the same n images, made unit length here;
    temperature = t. Proposition 1 of the appendix (Yeh et al., ECCV 2022), with the positive in the denominator, as in
    its proof: the factor that scales the gradient of InfoNCE. Batches are drawn by the seed; images that do not fill a
    last one are left out, so each size has n // size * size numbers.
    """
    first, second = unit("first", first, least=2), unit("second", second)
    if first.shape != second.shape:
        raise UserError("second", f"expected {tuple(first.shape)} as the first, got {tuple(second.shape)}")
    check_positive("temperature", temperature)
    return {
        size: torch.cat([_coupled(first[rows], second[rows], temperature) for rows in drawn(len(first), size, seed)])
        for size in sizes
    }


def drawn(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Rows 0 to count - 1 in a drawn order, so many at a time; none of them is short."""
    if not 2 <= size <= count:
        raise UserError("size", f"a batch is of 2 to the {count} images that there are, got {size}")
    ordered = order(key(seed, torch.arange(count)))
    return (ordered[start : start + size] for start in range(0, count - size + 1, size))


def _coupled(x: Tensor, y: Tensor, temperature: float) -> Tensor:
    """(size,)"""
    ids = torch.arange(len(x), device=x.device)
    negatives = Negatives(torch.cat([x, y]), ids.repeat(2), ids)
    others = Stream(x, negatives).softmax(1 / temperature).log_sum_exp
    return torch.sigmoid(others - (x * y).sum(1) / temperature)
