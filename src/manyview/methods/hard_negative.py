"""Hard negatives."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.encoders import Encoder, heads
from manyview.methods.method import Head, Loss, MakeMemory, Method
from manyview.methods.simclr import simclr


def hard_negative(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=2),
    loss: Loss = partial(losses.hard_negative, temperature=0.5, beta=1.0, tau_plus=0.1),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """HN-CL (Robinson et al., ICLR 2021), the CACR paper's baseline: SimCLR with negatives weighed by similarity.

    Numbers are those of the authors' code; its head ends without batch norm, this one is SimCLR's.
    """
    return simclr(encoder, copies=copies, head=head, loss=loss, memory=memory)
