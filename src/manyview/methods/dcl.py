"""Decoupled contrastive learning."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.encoders import Encoder, heads
from manyview.memories import memory as against
from manyview.methods.method import Head, Loss, MakeNegatives, Method
from manyview.methods.simclr import simclr


def dcl(
    encoder: Encoder,
    *,
    views: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1),
    negatives: MakeNegatives = partial(against.batch),
) -> Method:
    """DCL (Yeh et al., ECCV 2022), Proposition 2: SimCLR without the positive in the denominator. For small batches."""
    return simclr(encoder, views=views, head=head, loss=loss, negatives=negatives)


def dclw(
    encoder: Encoder,
    *,
    views: int = 2,
    head: Head = partial(heads.simclr, dim_out=128, layers=3),
    loss: Loss = partial(losses.dcl, temperature=0.1, sigma=0.5),
    negatives: MakeNegatives = partial(against.batch),
) -> Method:
    """DCLW: DCL whose positives weigh more the less alike they are already."""
    return simclr(encoder, views=views, head=head, loss=loss, negatives=negatives)
