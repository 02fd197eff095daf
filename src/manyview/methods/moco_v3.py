"""MoCo v3: momentum contrast with a predictor and without a queue, for ResNets and vision transformers."""

from __future__ import annotations

from functools import partial

import torch

from manyview import losses
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import cosine
from manyview.losses.traits import option
from manyview.methods.method import VIEW, Head, Loss, Method, Momentum, Small
from manyview.methods.terms import Contrast, keys, queries
from manyview.methods.topologies import each_key_against_other_queries


def moco_v3(
    encoder: Encoder,
    *,
    small: Small = 0,
    momentum: Momentum = partial(cosine, start=0.99),
    head: Head = partial(heads.projector, dim_out=256, hidden=4096, layers=2),
    predictor: Head = partial(heads.predictor, dim_out=256, hidden=4096, last_norm=False),
    loss: Loss = partial(losses.info_nce, temperature=1.0),
) -> Method:
    """MoCo v3 (Chen et al., ICCV 2021, Algorithm 1): 2 t CE(q1, k2) + 2 t CE(q2, k1); negatives are the other keys.

    small      small crops besides, which are queries only: each key is then the positive of all other copies' queries,
               of which the mean is taken. The authors' code has none; CACR's has eight
    momentum   of the key encoder; it follows after each step of the optimiser (in the authors' code before the keys'
               pass of the next, with that one's momentum)
    head       for a ViT layers=3 and temperature 0.2; the numbers here are for a ResNet
    predictor  on the queries alone, and without momentum; for a ViT last_norm=True

    The sum over both keys of the mean over the queries, times 2 t. One pass through the encoder per copy.
    """
    towers = predicting_towers(encoder, head, predictor, momentum)
    slots = queries(VIEW, range(2 + small)), keys(VIEW, range(2))
    term = Contrast(each_key_against_other_queries, loss, *slots, weight=two_temperatures(loss))
    return Method(views={VIEW: 2 + small}, towers=towers, terms=[term], small=small)


def predicting_towers(encoder: Encoder, head: Head, predictor: Head, momentum: Momentum) -> Towers:
    """A query branch with a predictor and a key branch without, whose vectors must have one length."""
    towers = Towers(encoder, head, predictor=predictor, momentum=momentum, joint=False)
    made, some = next(iter(towers.predictor.values())), next(towers.parameters())
    with torch.no_grad():
        length = made.eval()(some.new_zeros(1, towers.dim)).shape[1]
    made.train()
    if length != towers.dim:
        raise UserError("predictor", f"gives {length} numbers, and keys have {towers.dim}: give both the same dim_out")
    return towers


def two_temperatures(loss: Loss) -> float:
    """The factor of MoCo v3's loss, 2 t, so that its gradient does not grow as t falls; 1 where there is no t."""
    temperature = option(loss, "temperature")
    return 1.0 if temperature is None else 2.0 * float(temperature)
