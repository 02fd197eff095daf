"""Contrastive attraction and contrastive repulsion."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.memories.memory import batch, queue
from manyview.methods.meetings import each_view, each_view_against_keys
from manyview.methods.method import Head, Loss, MakeMemory, Method, Momentum, Term
from manyview.methods.moco import momentum_towers


def cacr(
    encoder: Encoder,
    *,
    positives: int = 4,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.cacr, t_pos=1.0, t_neg=2.0),
    memory: MakeMemory = partial(batch),
) -> Method:
    """CACR (Zheng et al., 2023), section 3.2, with `positives` = K: K + 1 views, each in turn the query.

    Negatives are the same view of the batch's other images (the authors' CIFAR code takes another view's). One pass
    through the encoder per view. To see as many images as with two views, divide the batch by (K + 1) / 2.
    """
    if positives < 1:
        raise UserError("positives", f"expected at least 1 (K), got {positives}")
    towers = Towers(encoder, head)
    term = Term(each_view, loss, memory(towers.dim))
    return Method(towers, [term], queries=range(1 + positives), together=False)


def uaur(
    encoder: Encoder,
    *,
    positives: int = 1,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.cacr, attract="uniform", repel="uniform"),
    memory: MakeMemory = partial(batch),
) -> Method:
    """Uniform attraction and uniform repulsion (CACR Eq. 11): CACR without its weights, which shows what they do."""
    return cacr(encoder, positives=positives, head=head, loss=loss, memory=memory)


def cacr_moco(
    encoder: Encoder,
    *,
    positives: int = 4,
    momentum: Momentum = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.cacr, t_pos=1.0, t_neg=2.0, detach_weights="positives"),
    memory: MakeMemory = partial(queue, size=65536, enqueue="last", within_batch=1.0),
) -> Method:
    """CACR with MoCo v2 (its Algorithm 3), `positives` = K: negatives are the queue and the batch's other queries.

    The weights of the positives carry no gradient, those of the negatives do. The authors' released code differs: all
    views meet the first one's similarities to the queue. The queue takes the last view's keys.
    """
    if positives < 1:
        raise UserError("positives", f"expected at least 1 (K), got {positives}")
    towers = momentum_towers(encoder, head, momentum, bn_splits)
    term = Term(each_view_against_keys, loss, memory(towers.dim))
    views = range(1 + positives)
    return Method(towers, [term], queries=views, keys=views, together=False)
