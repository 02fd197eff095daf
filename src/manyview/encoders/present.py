"""Only images that have a view go through its tower, so that batch norm sees no others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Place = TypeVar("Place", bound=Hashable)


def embed_present(
    embed: Callable[[list[Tensor]], dict[Place, Tensor]],
    copies: list[Tensor],
    present: Tensor,
    networks: nn.Module,
    splits: int = 1,
) -> dict[Place, Tensor]:
    """embed(copies) of the rows that `present` (N,) names; the others are zero, and pass no gradient on.

    networks  what embeds. Where less than two rows a group of its batch norms are left, which have no statistics of
              their own, the running ones stand for them
    splits    groups of a split batch norm: the first rows come twice where they do not fall into equal ones

    Where no row is left, one goes through all the same and nothing of it is used: every parameter then has a gradient,
    of zero, which several processes can average.
    """
    rows = present.nonzero()[:, 0]
    if len(rows) == len(present):
        return embed(copies)
    few = len(rows) < 2 * splits
    taken = rows.repeat(2)[: len(rows) + -len(rows) % splits] if not few else rows if len(rows) else rows.new_zeros(1)
    with running_statistics(networks) if few else nullcontext():
        made = embed([copy[taken] for copy in copies])
    return {place: _spread(each[: len(rows)], rows, len(present)) for place, each in made.items()}


def _spread(made: Tensor, rows: Tensor, count: int) -> Tensor:
    return made.new_zeros(count, *made.shape[1:]).index_copy(0, rows, made)


@contextmanager
def running_statistics(networks: nn.Module) -> Iterator[None]:
    """Batch norms use and keep their running statistics; those over all processes go on, which wait for this one."""
    norms = [part for part in networks.modules() if isinstance(part, _BatchNorm) and part.training]
    own = [part for part in norms if not isinstance(part, nn.SyncBatchNorm)]
    for part in own:
        part.eval()
    try:
        yield
    finally:
        for part in own:
            part.train()
