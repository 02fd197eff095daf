"""Alignment and uniformity."""

from __future__ import annotations

from functools import partial

from manyview import losses, memories
from manyview.core.bounds import Count
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Momentum, Small
from manyview.methods.moco import momentum_towers
from manyview.methods.simclr import at_least_two
from manyview.methods.terms import Contrast, keys, queries
from manyview.methods.topologies import each_copy, query_against_keys_and_queries


def align_uniform(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    joint: bool = True,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=2, align_weight=1.0, uniform_weight=1.0),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """AU-CL (Wang & Isola, ICML 2020) as SsnL/align_uniform has it: uniformity within each copy, then averaged.

    small  small crops besides, which are queries and positives like all copies
    joint  all copies of one size go through the encoder in one pass, as in that code; false: one pass each
    """
    towers, count = Towers(encoder, head, joint=joint), at_least_two(copies, small)
    kept = memory(towers.dim)
    term = Contrast(each_copy, loss, queries(VIEW, range(count)), memory=kept)
    return Method(views={VIEW: count}, towers=towers, terms=[term], memories={VIEW: kept}, small=small)


def align_uniform_moco(
    encoder: Encoder,
    *,
    bn_splits: Count = 1,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=3, align_weight=3.0, uniform_weight=1.0),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="each", within_batch=0.5),
) -> Method:
    """AU-CL with MoCo (SsnL/moco_align_uniform): the queue's pairs and the batch's pooled before the logarithm.

    within_batch = 1/2, since each pair of the batch is met from both sides.
    """
    towers = momentum_towers(encoder, head, momentum, bn_splits, joint=True)
    kept = memory(towers.dim)
    term = Contrast(query_against_keys_and_queries, loss, queries(VIEW, 0), keys(VIEW, 1), memory=kept)
    return Method(views={VIEW: 2}, towers=towers, terms=[term], memories={VIEW: kept})
