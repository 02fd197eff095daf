"""No negatives: a predictor on the queries, keys from a momentum tower, and their alignment."""

from __future__ import annotations

from functools import partial

from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import cosine
from manyview.methods.method import VIEW, Head, Method, Momentum
from manyview.methods.terms import Alignment, keys, queries


def no_negatives(
    encoder: Encoder,
    *,
    head: Head = partial(heads.mlp, dim_out=8),
    predictor: Head = partial(heads.mlp, dim_out=8),
    momentum: Momentum = partial(cosine, start=0.9),
) -> Method:
    """Each copy's prediction is drawn to the other copy's momentum key."""
    towers = Towers(encoder, head, predictor=predictor, momentum=momentum)
    term = Alignment(queries(VIEW, (0, 1)), keys(VIEW, (1, 0)))
    return Method(views={VIEW: 2}, towers=towers, terms=[term])
