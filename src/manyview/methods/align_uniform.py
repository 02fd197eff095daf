"""Alignment and uniformity."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.encoders import Encoder, Towers, heads
from manyview.memories import memory as against
from manyview.methods.meetings import each_view, query_against_keys_and_queries
from manyview.methods.method import Head, Loss, MakeNegatives, Method, Term
from manyview.methods.moco import momentum_towers
from manyview.methods.simclr import at_least_two


def align_uniform(
    encoder: Encoder,
    *,
    views: int = 2,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=2, align_weight=1.0, uniform_weight=1.0),
    negatives: MakeNegatives = partial(against.batch),
) -> Method:
    """AU-CL (Wang & Isola, ICML 2020) as SsnL/align_uniform has it: uniformity within each view, then averaged."""
    towers = Towers(encoder, head)
    term = Term(each_view, loss, negatives(towers.dim))
    return Method(towers, [term], queries=range(at_least_two(views)))


def align_uniform_moco(
    encoder: Encoder,
    *,
    momentum: float = 0.999,
    splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.align_uniform, alpha=2, t=3, align_weight=3.0, uniform_weight=1.0),
    negatives: MakeNegatives = partial(against.queue, size=65536, enqueue="each", within_batch=0.5),
) -> Method:
    """AU-CL with MoCo (SsnL/moco_align_uniform): the queue's pairs and the batch's pooled before the logarithm.

    within_batch = 1/2, since each pair of the batch is met from both sides.
    """
    towers = momentum_towers(encoder, head, momentum, splits)
    term = Term(query_against_keys_and_queries, loss, negatives(towers.dim))
    return Method(towers, [term], queries=(0,), keys=(1,))
