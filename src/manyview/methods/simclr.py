"""SimCLR."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import every_copy


def simclr(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.info_nce, temperature=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """SimCLR (Chen et al., ICML 2020) as google-research/simclr has it: NT-Xent over two copies, in-batch negatives.

    The mean over the 2N anchors, half of what that code minimises. With more copies each has all others as positives.
    All copies go through the encoder together.
    """
    towers = Towers(encoder, head)
    kept = memory(towers.dim)
    term = Contrast(every_copy, loss, queries(VIEW, range(at_least_two(copies))), memory=kept)
    return Method(views={VIEW: copies}, towers=towers, terms=[term], memories={VIEW: kept})


def at_least_two(copies: int) -> int:
    if copies < 2:
        raise UserError("copies", f"expected 2 or more, since a query needs a positive, got {copies}")
    return copies
