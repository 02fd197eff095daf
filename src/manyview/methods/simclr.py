"""SimCLR."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.memories.memory import batch
from manyview.methods.meetings import every_view
from manyview.methods.method import Head, Loss, MakeMemory, Method, Term


def simclr(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.info_nce, temperature=0.1),
    memory: MakeMemory = partial(batch),
) -> Method:
    """SimCLR (Chen et al., ICML 2020) as google-research/simclr has it: NT-Xent over two views, in-batch negatives.

    The mean over the 2N anchors, half of what that code minimises. With more views each has all others as positives.
    All views go through the encoder together.
    """
    towers = Towers(encoder, head)
    term = Term(every_view, loss, memory(towers.dim))
    return Method(towers, [term], queries=range(at_least_two(copies)))


def at_least_two(copies: int) -> int:
    if copies < 2:
        raise UserError("copies", f"expected 2 or more, since a query needs a positive, got {copies}")
    return copies
