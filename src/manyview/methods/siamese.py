"""Siamese networks without negatives: SimSiam, and BYOL with its momentum encoder."""

from __future__ import annotations

from functools import partial

from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.momentum import cosine
from manyview.losses.siamese import negative_cosine, squared_distance
from manyview.methods.method import VIEW, Head, Method, Momentum, Small
from manyview.methods.terms import Alignment, keys, queries

BOTH, SWAPPED = (0, 1), (1, 0)  # each copy's prediction is compared with the other copy's projection


def predictions(small: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Copies that predict, and of each pair the one that is predicted: a large one, of small crops each in turn."""
    crops = range(2, 2 + small)
    return (*BOTH, *(crop for crop in crops for _ in SWAPPED)), (*SWAPPED, *(SWAPPED * small))


def simsiam(
    encoder: Encoder,
    *,
    small: Small = 0,
    head: Head = partial(heads.projector, dim_out=2048, hidden=2048, layers=3),
    predictor: Head = partial(heads.bn_mlp, dim_out=2048, hidden=512, bias=True),
) -> Method:
    """SimSiam (Chen & He, CVPR 2021), Eq. 4: L = D(p_1, stopgrad(z_2)) / 2 + D(p_2, stopgrad(z_1)) / 2.

    D is the negative cosine, z a projection and p what the predictor makes of it. What is predicted has no gradient:
    with one, all images become the same vector (section 4.1). Copies go through the encoder one after the other. The
    authors' code can keep the predictor's learning rate as it is: `schedule.keep_predictor`.

    small  small crops besides, which predict both large copies and are not predicted; the mean over all pairs
    """
    towers = Towers(encoder, head, predictor=predictor, joint=False)
    asked, predicted = predictions(small)
    term = Alignment(queries(VIEW, asked), queries(VIEW, predicted, "projection"), negative_cosine, stop_gradient=True)
    return Method(views={VIEW: 2 + small}, towers=towers, terms=[term], small=small)


def byol(
    encoder: Encoder,
    *,
    small: Small = 0,
    momentum: Momentum = partial(cosine, start=0.996),
    head: Head = partial(heads.bn_mlp, dim_out=256, hidden=4096),
    predictor: Head = partial(heads.bn_mlp, dim_out=256, hidden=4096),
) -> Method:
    """BYOL (Grill et al., NeurIPS 2020), Eq. 2 and its mirror image, added: L = |q_1 - z_2|^2 + |q_2 - z_1|^2.

    q is what the predictor makes of a copy's projection, z the other copy's projection by the momentum encoder; both
    are made unit length. Copies go through the encoder one after the other.

    small  small crops besides, which predict both large copies and are not predicted: the sum over both of the mean
           over all that predict it
    """
    towers = Towers(encoder, head, predictor=predictor, momentum=momentum, joint=False)
    asked, predicted = predictions(small)
    term = Alignment(queries(VIEW, asked), keys(VIEW, predicted), squared_distance, weight=2.0)  # the sum, not the mean
    return Method(views={VIEW: 2 + small}, towers=towers, terms=[term], small=small)
