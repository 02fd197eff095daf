"""The coupling q_B of DCL: the factor that scales the gradient of InfoNCE, and is small in a small batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyview.core.distributed import no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.diagnose.vectors import draw_batches, unit
from manyview.losses.checks import Inputs, average, check_positive
from manyview.losses.streaming import Stream


def coupling(given: Inputs, stream: Stream, temperature: float) -> float:
    """q_B of DCL (Yeh et al., ECCV 2022, appendix) for what a loss was given: the mean over queries and positives.

    1 - exp(s+ / t) / (exp(s+ / t) + sum_j exp(s_ij / t)). The display of the appendix leaves the positive out of the
    denominator, its proof does not; only with it the gradient is right.
    """
    others = stream.softmax(1 / temperature).log_sum_exp
    factors = torch.sigmoid(others[:, None] - given.similarities() / temperature)
    return float(average(given.over_positives(factors), given.present, "mean", no_gather))


@torch.no_grad()
def couplings(
    first: Tensor, second: Tensor, sizes: Sequence[int], *, temperature: float = 0.1, seed: int = 0
) -> dict[int, Tensor]:
    """q_B of each image in a batch, by the batch's size: its distribution, for DCL's argument about small batches.

    q_B,i = U_i / ( exp(x_i.y_i / t) + U_i ),  U_i = sum over j != i of exp(x_i.x_j / t) + exp(x_i.y_j / t)

    first (n, d) = x = z^(1), second (n, d) = y = z^(2), two augmented copies of the same n images, made unit length
    here; temperature = t. Proposition 1 of the appendix (Yeh et al., ECCV 2022), with the positive in the denominator,
    as in its proof. Batches are drawn by the seed; images that do not fill a last one are left out, so each size has
    n // size * size numbers.
    """
    first, second = unit("first", first, least=2), unit("second", second)
    if first.shape != second.shape:
        raise UserError("second", f"expected {tuple(first.shape)} as the first, got {tuple(second.shape)}")
    check_positive("temperature", temperature)
    return {
        size: torch.cat(
            [_of_batch(first[rows], second[rows], temperature) for rows in draw_batches(len(first), size, seed)]
        )
        for size in sizes
    }


def _of_batch(x: Tensor, y: Tensor, temperature: float) -> Tensor:
    """q_B of the images of one batch, (size,)."""
    ids = torch.arange(len(x), device=x.device)
    negatives = Negatives(torch.cat([x, y]), ids.repeat(2), ids)
    others = Stream(x, negatives).softmax(1 / temperature).log_sum_exp
    return torch.sigmoid(others - (x * y).sum(1) / temperature)
