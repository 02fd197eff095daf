"""Decoupled contrastive learning."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.encoders import Encoder, heads
from manyview.methods.method import Head, Loss, MakeMemory, Method
from manyview.methods.simclr import simclr


def dcl(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """DCL (Yeh et al., ECCV 2022), Proposition 2: SimCLR without the positive in the denominator. For small batches."""
    return simclr(encoder, copies=copies, head=head, loss=loss, memory=memory)


def dclw(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1, sigma=0.5),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """DCLW: DCL whose positives weigh more the less alike they are already."""
    return simclr(encoder, copies=copies, head=head, loss=loss, memory=memory)
