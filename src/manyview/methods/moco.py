"""Momentum contrast: keys from a slowly following copy of the encoder, negatives from a queue of them."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.encoders import Encoder, Towers, heads, split_batch_norm
from manyview.encoders.momentum import constant
from manyview.memories.memory import queue
from manyview.methods.meetings import each_query_against_other_keys, query_against_keys
from manyview.methods.method import Head, Loss, MakeMemory, Method, Momentum, Term

SHUFFLE = 0  # seed of the keys' order; the step's number makes it another one each time


def moco_v2(
    encoder: Encoder,
    *,
    symmetric: bool = False,
    momentum: Momentum = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(queue, size=65536, enqueue="each"),
) -> Method:
    """MoCo v2 (Chen et al., 2020): one query and one key an image, the queue's keys as negatives.

    symmetric  both views are queries and both are keys, as in MoCo's CIFAR-10 notebook: the sum of both directions, and
               the queue takes both keys once both losses are computed
    momentum   of the key encoder; it follows after the optimiser's step (in the authors' code before the keys' pass of
               the next, which is the same)
    bn_splits  groups of a process's batch with batch norm of their own, between which keys are shuffled: 8 in MoCo's
               notebook. With 1, in one process, shuffling changes nothing
    """
    towers = momentum_towers(encoder, head, momentum, bn_splits)
    pairs = each_query_against_other_keys if symmetric else query_against_keys
    term = Term(pairs, loss, memory(towers.dim))
    queries, keys = ((0, 1), (0, 1)) if symmetric else ((0,), (1,))
    return Method(towers, [term], queries=queries, keys=keys, together=False)


def moco_v1(
    encoder: Encoder,
    *,
    symmetric: bool = False,
    momentum: Momentum = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.07),
    memory: MakeMemory = partial(queue, size=65536, enqueue="each"),
) -> Method:
    """MoCo (He et al., CVPR 2020): as `moco_v2`, with a linear head and temperature 0.07."""
    return moco_v2(
        encoder, symmetric=symmetric, momentum=momentum, bn_splits=bn_splits, head=head, loss=loss, memory=memory
    )


def momentum_towers(encoder: Encoder, head: Head, momentum: Momentum | None, bn_splits: int) -> Towers:
    """Query and key branch, the keys shuffled between groups of the batch (MoCo, section 3.3)."""
    towers = Towers(encoder, head, momentum=momentum, shuffle=SHUFFLE)
    if bn_splits > 1:
        split_batch_norm(towers, bn_splits)
    return towers
