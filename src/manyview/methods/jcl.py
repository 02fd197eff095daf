"""Joint contrastive learning, and the vanilla many keys it is compared with."""

from __future__ import annotations

import inspect
from functools import partial

from manyview import losses, memories
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import constant
from manyview.memories import Memory
from manyview.methods import terms
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Momentum
from manyview.methods.moco import momentum_towers
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import query_against_keys


def jcl(
    encoder: Encoder,
    *,
    keys: Count = 5,
    ramp: bool = False,
    joint: bool = True,
    bn_splits: Count = 1,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.jcl, temperature=0.2, strength=4.0),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="mean"),
) -> Method:
    """JCL (Cai et al., NeurIPS 2020), Algorithm 1: infinitely many positives, from the statistics of `keys` = M'.

    ramp       the strength lambda grows with the epochs, lambda (epoch + 1) / epochs, as in the authors' code; constant
               in the paper, and here unless asked for
    joint      the N M' keys go through their encoder in one pass, shuffled, as in the paper; false: one pass for each
               of the M' copies
    bn_splits  see `moco_v2`
    momentum   of the key encoder. Algorithm 1 updates both encoders by the loss; the authors' code, like MoCo and this,
               lets the keys' follow

    The queue takes the means of an image's keys, not made unit length again.
    """
    if ramp and "strength" not in inspect.signature(loss).parameters:
        raise UserError("ramp", "is the growth of jcl's strength, which this loss has not; leave it out")
    towers = momentum_towers(encoder, head, momentum, bn_splits, joint=joint)
    return one_query(towers, loss, memory(towers.dim), keys, ramp=("strength",) if ramp else ())


def multikey(
    encoder: Encoder,
    *,
    keys: Count = 5,
    joint: bool = True,
    bn_splits: Count = 1,
    momentum: Momentum | None = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(memories.queue, size=65536, enqueue="mean"),
) -> Method:
    """The vanilla use of many keys that JCL starts from (Eq. 3): the mean of InfoNCE over `keys` = M positives.

    joint     all keys go through their encoder in one pass; false: one pass for each copy
    momentum  None: keys come from the query encoder and carry gradient, as section 3.2 has it; appendix B describes the
              cost. With momentum, as in MoCo, they carry none. The paper does not say which its scores are of
    """
    towers = momentum_towers(encoder, head, momentum, bn_splits, joint=joint)
    return one_query(towers, loss, memory(towers.dim), keys)


def one_query(towers: Towers, loss: Loss, memory: Memory, keys: int, *, ramp: tuple[str, ...] = ()) -> Method:
    """Copy 0 is the query, copies 1 to `keys` are the keys."""
    if keys < 1:
        raise UserError("keys", f"expected at least 1 positive an image, got {keys}")
    slots = terms.keys(VIEW, range(1, 1 + keys))
    term = Contrast(query_against_keys, loss, queries(VIEW, 0), slots, memory=memory, ramp=ramp)
    return Method(views={VIEW: 1 + keys}, towers=towers, terms=[term], memories={VIEW: memory})
