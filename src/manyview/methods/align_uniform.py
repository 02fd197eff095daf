"""Alignment and uniformity."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.memories.memory import batch, queue
from manyview.methods.meetings import each_view, query_against_keys_and_queries
from manyview.methods.method import Head, Loss, MakeMemory, Method, Momentum, Term
from manyview.methods.moco import momentum_towers
from manyview.methods.simclr import at_least_two


def align_uniform(
    encoder: Encoder,
    *,
    copies: int = 2,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=2, align_weight=1.0, uniform_weight=1.0),
    memory: MakeMemory = partial(batch),
) -> Method:
    """AU-CL (Wang & Isola, ICML 2020) as SsnL/align_uniform has it: uniformity within each view, then averaged."""
    towers = Towers(encoder, head)
    term = Term(each_view, loss, memory(towers.dim))
    return Method(towers, [term], queries=range(at_least_two(copies)))


def align_uniform_moco(
    encoder: Encoder,
    *,
    momentum: Momentum = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=3, align_weight=3.0, uniform_weight=1.0),
    memory: MakeMemory = partial(queue, size=65536, enqueue="each", within_batch=0.5),
) -> Method:
    """AU-CL with MoCo (SsnL/moco_align_uniform): the queue's pairs and the batch's pooled before the logarithm.

    within_batch = 1/2, since each pair of the batch is met from both sides.
    """
    towers = momentum_towers(encoder, head, momentum, bn_splits)
    term = Term(query_against_keys_and_queries, loss, memory(towers.dim))
    return Method(towers, [term], queries=(0,), keys=(1,))
