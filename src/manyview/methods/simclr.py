"""SimCLR, and the methods that are SimCLR with another loss: DCL, DCLW and HN-CL."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Small
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import every_copy


def simclr(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    joint: bool = True,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.info_nce, temperature=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """SimCLR (Chen et al., ICML 2020) as google-research/simclr has it: NT-Xent over two copies, in-batch negatives.

    The mean over the 2N anchors, half of what that code minimises. With more copies each has all others as positives,
    and so have `small` small crops besides.

    joint  all copies of one size go through the encoder in one pass, so that batch norm sees them together, as in that
           code; false: one pass each
    """
    towers, count = Towers(encoder, head, joint=joint), at_least_two(copies, small)
    kept = memory(towers.dim)
    term = Contrast(every_copy, loss, queries(VIEW, range(count)), memory=kept)
    return Method(views={VIEW: count}, towers=towers, terms=[term], memories={VIEW: kept}, small=small)


def dcl(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    joint: bool = True,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """DCL (Yeh et al., ECCV 2022), Proposition 2: SimCLR without the positive in the denominator. For small batches.

    joint  all copies go through the encoder in one pass; false: one pass each
    """
    return simclr(encoder, copies=copies, small=small, joint=joint, head=head, loss=loss, memory=memory)


def dclw(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    joint: bool = True,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1, sigma=0.5),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """DCLW: DCL whose positives weigh more the less alike they are already.

    joint  all copies go through the encoder in one pass; false: one pass each
    """
    return simclr(encoder, copies=copies, small=small, joint=joint, head=head, loss=loss, memory=memory)


def hard_negative(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    joint: bool = True,
    head: Head = partial(heads.simclr, dim_out=128, layers=2),
    loss: Loss = partial(losses.hard_negative, temperature=0.5, beta=1.0, tau_plus=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """HN-CL (Robinson et al., ICLR 2021), the CACR paper's baseline: SimCLR with negatives weighed by similarity.

    Numbers are those of the authors' code; its head ends without batch norm, this one is SimCLR's.

    joint  all copies go through the encoder in one pass; false: one pass each, as in the authors' code
    """
    return simclr(encoder, copies=copies, small=small, joint=joint, head=head, loss=loss, memory=memory)


def at_least_two(copies: int, small: int = 0) -> int:
    """Says how many there are, large and small ones together; refuses fewer than two."""
    if copies + small < 2:
        raise UserError("copies", f"expected 2 or more, since a query needs a positive, got {copies + small}")
    return copies + small
