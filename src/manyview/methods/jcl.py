"""Joint contrastive learning, and the vanilla many keys it is compared with."""

from __future__ import annotations

import inspect
from functools import partial

from manyview import losses
from manyview.core.errors import UserError
from manyview.encoders import Encoder, heads
from manyview.encoders.momentum import constant
from manyview.memories.memory import queue
from manyview.methods.meetings import query_against_keys
from manyview.methods.method import Head, Loss, MakeMemory, Method, Momentum, Term
from manyview.methods.moco import momentum_towers


def jcl(
    encoder: Encoder,
    *,
    keys: int = 5,
    ramp: bool = False,
    momentum: Momentum = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.jcl, temperature=0.2, strength=4.0),
    memory: MakeMemory = partial(queue, size=65536, enqueue="mean"),
) -> Method:
    """JCL (Cai et al., NeurIPS 2020), Algorithm 1: infinitely many positives, from the statistics of `keys` = M'.

    ramp       the strength lambda grows with the epochs, lambda (epoch + 1) / epochs, as in the authors' code;
               constant in the paper, and here unless asked for
    momentum   of the key encoder. Algorithm 1 updates both encoders by the loss; the authors' code, like MoCo and this,
               lets the keys' follow
    bn_splits  see `moco_v2`

    The keys of all N M' views go through their encoder together, shuffled. The queue takes their means, not made unit
    length again.
    """
    if keys < 1:
        raise UserError("keys", f"expected at least 1 positive an image, got {keys}")
    if ramp and "strength" not in inspect.signature(loss).parameters:
        raise UserError("ramp", "is the growth of jcl's strength, which this loss has not; leave it out")
    towers = momentum_towers(encoder, head, momentum, bn_splits)
    term = Term(query_against_keys, loss, memory(towers.dim), ramp=("strength",) if ramp else ())
    return Method(towers, [term], queries=(0,), keys=range(1, 1 + keys))


def multikey(
    encoder: Encoder,
    *,
    keys: int = 5,
    momentum: Momentum | None = partial(constant, start=0.999),
    bn_splits: int = 1,
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(queue, size=65536, enqueue="mean"),
) -> Method:
    """The vanilla use of many keys that JCL starts from (Eq. 3): the mean of InfoNCE over `keys` = M positives.

    momentum  None: keys come from the query encoder and carry gradient, whose cost JCL's appendix B describes
    """
    if keys < 1:
        raise UserError("keys", f"expected at least 1 positive an image, got {keys}")
    towers = momentum_towers(encoder, head, momentum, bn_splits)
    term = Term(query_against_keys, loss, memory(towers.dim))
    return Method(towers, [term], queries=(0,), keys=range(1, 1 + keys))
