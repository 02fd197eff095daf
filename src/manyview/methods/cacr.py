"""Contrastive attraction and contrastive repulsion."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Momentum, Small
from manyview.methods.moco import momentum_towers
from manyview.methods.terms import Contrast, keys, queries
from manyview.methods.topologies import each_copy, each_copy_against_keys


def cacr(
    encoder: Encoder,
    *,
    positives: Count = 4,
    small: Small = 0,
    joint: bool = False,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.cacr, t_pos=1.0, t_neg=2.0),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """CACR (Zheng et al., 2023), section 3.2, with `positives` = K: K + 1 copies, each in turn the query.

    Negatives are the same copy of the batch's other images (the authors' CIFAR code takes another copy's). Of the batch
    for K > 1 the paper says: that of K = 1 divided by K (section 5, Table 17), 128 instead of 768 for K = 4 (C.1), the
    same 256 (Table 4, C.2).

    small  small crops besides, which are queries and positives like all copies; none in the paper
    joint  false: one pass through the encoder for each copy, as in the authors' code; true: all copies in one pass, so
           that batch norm sees them together
    """
    towers = Towers(encoder, head, joint=joint)
    kept, count = memory(towers.dim), len(_copies(positives)) + small
    term = Contrast(each_copy, loss, queries(VIEW, range(count)), memory=kept)
    return Method(views={VIEW: count}, towers=towers, terms=[term], memories={VIEW: kept}, small=small)


def uaur(
    encoder: Encoder,
    *,
    positives: Count = 1,
    small: Small = 0,
    joint: bool = False,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.cacr, attract="uniform", repel="uniform"),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """Uniform attraction and uniform repulsion (CACR Eq. 11): CACR without its weights, which shows what they do.

    small, joint  as in `cacr`
    """
    return cacr(encoder, positives=positives, small=small, joint=joint, head=head, loss=loss, memory=memory)


def cacr_moco(
    encoder: Encoder,
    *,
    positives: Count = 4,
    small: Small = 0,
    joint: bool = False,
    bn_splits: Count = 1,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.cacr, t_pos=1.0, t_neg=2.0, detach_weights="positives"),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="last", within_batch=1.0),
) -> Method:
    """CACR with MoCo v2 (its Algorithm 3), `positives` = K: negatives are the queue and the batch's other queries.

    The weights of the positives carry no gradient, those of the negatives do. The authors' released code differs: all
    copies meet the first one's similarities to the queue. The queue takes the last copy's keys.

    small  small crops besides, which are queries only, and have all K + 1 keys as positives
    joint  all copies of one size go through each encoder in one pass; false: one pass each, as in the authors' code
    """
    towers = momentum_towers(encoder, head, momentum, bn_splits, joint=joint)
    kept, copies = memory(towers.dim), _copies(positives)
    slots = queries(VIEW, range(len(copies) + small)), keys(VIEW, copies)
    term = Contrast(each_copy_against_keys, loss, *slots, memory=kept)
    return Method(views={VIEW: len(slots[0])}, towers=towers, terms=[term], memories={VIEW: kept}, small=small)


def _copies(positives: int) -> range:
    if positives < 1:
        raise UserError("positives", f"expected at least 1 (K), got {positives}")
    return range(1 + positives)
