"""Momentum contrast: keys from a slowly following copy of the encoder, negatives from a queue of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from manyview import losses, memories
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Momentum, Small
from manyview.methods.terms import Contrast, keys, queries
from manyview.methods.topologies import each_key_against_other_queries, query_against_keys


def moco_v2(
    encoder: Encoder,
    *,
    symmetric: bool = False,
    small: Small = 0,
    bn_splits: Count = 1,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="each"),
) -> Method:
    """MoCo v2 (Chen et al., 2020): one query and one key an image, the queue's keys as negatives.

    symmetric  both copies are queries and both are keys, as in MoCo's CIFAR-10 notebook: the sum of both directions,
               and the queue takes both keys once both losses are computed
    small      small crops besides, which are queries only, of both keys; the loss is then symmetric
    bn_splits  groups of a process's batch with batch norm of their own, between which keys are shuffled: 8 in MoCo's
               notebook. With 1, in one process, shuffling changes nothing
    momentum   of the key encoder; it follows after the optimiser's step (in the authors' code before the keys' pass of
               the next, which is the same)
    """
    if small and not symmetric:
        raise UserError("small", "small crops are queries of both keys; give --method.symmetric true as well, or 0")
    towers = momentum_towers(encoder, head, momentum, bn_splits, joint=False)
    kept = memory(towers.dim)
    if symmetric:
        asked, met = queries(VIEW, range(2 + small)), keys(VIEW, range(2))
        term = Contrast(each_key_against_other_queries, loss, asked, met, memory=kept)
    else:
        term = Contrast(query_against_keys, loss, queries(VIEW, 0), keys(VIEW, 1), memory=kept)
    return Method(views={VIEW: 2 + small}, towers=towers, terms=[term], memories={VIEW: kept}, small=small)


def moco_v1(
    encoder: Encoder,
    *,
    symmetric: bool = False,
    small: Small = 0,
    bn_splits: Count = 1,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.07),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="each"),
) -> Method:
    """MoCo (He et al., CVPR 2020): as `moco_v2`, with a linear head and temperature 0.07."""
    return moco_v2(
        encoder, symmetric=symmetric, small=small, bn_splits=bn_splits, momentum=momentum, head=head, loss=loss,
        memory=memory,
    )  # fmt: skip


def momentum_towers(
    encoder: Encoder | Mapping[str, Encoder],
    head: Head,
    momentum: Momentum | None,
    bn_splits: int,
    *,
    joint: bool,
    heads: Mapping[str, Head] | None = None,
) -> Towers:
    """Query and key branch, the keys shuffled between groups of the batch (MoCo, section 3.3), in each step anew."""
    return Towers(encoder, head, heads=heads, momentum=momentum, shuffle=0, bn_splits=bn_splits, joint=joint)
