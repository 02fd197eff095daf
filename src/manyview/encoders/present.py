"""What goes through a tower in one pass, and so through batch norm: images that have the view, and all their copies."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders.layers import batch_norms, copied_statistics

Place = TypeVar("Place", bound=Hashable)


def embed_present(
    embed: Callable[[list[Tensor]], dict[Place, Tensor]], copies: list[Tensor], present: Tensor
) -> dict[Place, Tensor]:
    """embed(copies) of the rows that `present` (N,) names; the others are zero, and pass no gradient on."""
    rows = present.nonzero()[:, 0]
    if len(rows) == len(present):
        return embed(copies)
    made = embed([copy[rows] for copy in copies])
    return {place: _spread(each, rows, len(present)) for place, each in made.items()}


def join_copies(copies: Sequence[Tensor]) -> Tensor:
    """(N, ..., C, H, W) each to (N copies, ..., C, H, W) in channels_last, the copies of an image side by side.

    So an image is in one group of a split batch norm, whatever process it is on.
    """
    if len(copies) == 1:
        return copies[0]
    return torch.stack([each.movedim(-3, -1) for each in copies], 1).flatten(0, 1).movedim(-1, -3)


def embed_any_number(
    forward: Callable[[Tensor], dict[str, Tensor]], x: Tensor, *, networks: nn.Module, least: int = 2
) -> dict[str, Tensor]:
    """forward(x), where x may have too few rows for batch norm, or none.

    networks  what forward uses. With less than `least` rows its batch norms have no statistics of their own, and the
              running ones stand for them

    Where there is no row, one goes through all the same and nothing of it is used: every parameter then has a gradient,
    of zero, which several processes can average. Batch norms over all processes do not count it.
    """
    if len(x) >= least:
        return forward(x)
    if len(x):
        with use_running_statistics(networks):
            return forward(x)
    with use_running_statistics(networks), uncounted(networks):
        return {name: rows[:0] for name, rows in forward(x.new_zeros(1, *x.shape[1:])).items()}


def _spread(made: Tensor, rows: Tensor, count: int) -> Tensor:
    return made.new_zeros(count, *made.shape[1:]).index_copy(0, rows, made)


@contextmanager
def use_running_statistics(networks: nn.Module) -> Iterator[None]:
    """Batch norms use and keep their running statistics; those over all processes go on, which wait for this one.

    They use copies, since the backward pass looks at them once more, and other images may have moved them by then.
    """
    norms = [norm for norm in batch_norms(networks) if norm.training]
    own = {norm: norm._buffers for norm in norms if not isinstance(norm, nn.SyncBatchNorm)}
    for norm in own:
        norm.eval()._buffers = copied_statistics(norm)
    try:
        yield
    finally:
        for norm, buffers in own.items():
            norm.train()._buffers = buffers


@contextmanager
def uncounted(networks: nn.Module) -> Iterator[None]:
    """Batch norms over all processes take part, forward and backward, without the rows that go through here."""
    norms = [norm for norm in batch_norms(networks) if norm.training and isinstance(norm, nn.SyncBatchNorm)]
    for norm in norms:
        vars(norm)["forward"] = partial(_pass_by, norm, norm.forward)
    try:
        yield
    finally:
        for norm in norms:
            del vars(norm)["forward"]  # its class's is left


def _pass_by(norm: nn.SyncBatchNorm, forward: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`forward` of no row, for the other processes, and x scaled and shifted, so that parameters have a gradient."""
    still, one = x.new_zeros(norm.num_features), x.new_ones(norm.num_features)
    return torch.cat([forward(x[:0]), F.batch_norm(x, still, one, norm.weight, norm.bias)])
