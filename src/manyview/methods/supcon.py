"""Supervised contrast: all images of a class are each other's positives."""

from __future__ import annotations

from functools import partial

from manyview import losses
from manyview.core.bounds import Positive
from manyview.encoders import Encoder, Towers, heads
from manyview.methods.method import VIEW, Head, Method, Small
from manyview.methods.simclr import at_least_two
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import every_copy_of_a_class


def supcon(
    encoder: Encoder,
    *,
    copies: int = 2,
    small: Small = 0,
    temperature: Positive = 0.1,
    head: Head = partial(heads.mlp, dim_out=128),
) -> Method:
    """SupCon (Khosla et al., NeurIPS 2020), Eq. 2, the loss L_out: all images of a class are each other's positives.

    L_i = -1/|P(i)| sum_{p in P(i)} log [ exp(z_i.z_p / t) / sum_{a in A(i)} exp(z_i.z_a / t) ]

    P(i) are all other copies and images of the class of i, A(i) all others at all, P(i) among them. The logarithm of
    the denominator does not depend on p and the rest is linear in z_p, so that this is DCL's form with the positives'
    mean, against A(i). The mean over anchors; the authors' code multiplies it by t / 0.07. An image without a label is
    a class of its own.

    small  small crops besides, which are anchors and positives like all copies
    """
    loss = partial(losses.dcl, temperature=temperature)
    count = at_least_two(copies, small)
    term = Contrast(every_copy_of_a_class, loss, queries(VIEW, range(count)), takes_labels=True)
    return Method(views={VIEW: count}, towers=Towers(encoder, head), terms=[term], small=small)
