"""CACR in the frame of MoCo v3: as section 3.2 has it, and as its authors released it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from manyview import losses
from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.negatives import Triple
from manyview.encoders import Encoder, Slot, heads
from manyview.encoders.momentum import cosine
from manyview.losses.traits import is_pooled, option
from manyview.methods.method import VIEW, Head, Loss, Method, Momentum, Small
from manyview.methods.moco_v3 import predicting_towers, two_temperatures
from manyview.methods.terms import BatchOutputs, Contrast, keys, queries
from manyview.methods.topologies import Topology, each_key_against_other_queries, each_query_against_other_keys


def cacr_moco_v3(
    encoder: Encoder,
    *,
    positives: Count = 4,
    small: Small = 0,
    momentum: Momentum = partial(cosine, start=0.99),
    head: Head = partial(heads.projector, dim_out=256, hidden=4096, layers=2),
    predictor: Head = partial(heads.predictor, dim_out=256, hidden=4096, last_norm=False),
    loss: Loss = partial(losses.cacr, t_pos=1.0, t_neg=2.0, detach_weights="positives"),
) -> Method:
    """CACR (Zheng et al., 2023), section 3.2, with the towers of MoCo v3, as C.2 says of its main experiments.

    positives  K: of K + 1 copies each in turn is the query; its positives are the momentum keys of the others, its
               negatives the other images' keys of these
    small      small crops besides, which are queries only, and have all K + 1 keys as positives
    loss       the weights of positives carry no gradient, as in Algorithm 3, where these are momentum keys too

    The mean over the queries. What the authors released is another loss: see `cacr_moco_v3_code`.
    """
    towers, large = predicting_towers(encoder, head, predictor, momentum), 1 + positives
    slots = queries(VIEW, range(large + small)), keys(VIEW, range(large))
    term = Contrast(each_query_against_other_keys, loss, *slots)
    return Method(views={VIEW: large + small}, towers=towers, terms=[term], small=small)


def cacr_moco_v3_code(
    encoder: Encoder,
    *,
    small: Small = 8,
    momentum: Momentum = partial(cosine, start=0.996),
    head: Head = partial(heads.projector, dim_out=256, hidden=4096, layers=2),
    predictor: Head = partial(heads.predictor, dim_out=256, hidden=4096, last_norm=False),
    loss: Loss = partial(losses.info_nce, temperature=1.0),
) -> Method:
    """CACR in MoCo v3's frame as its authors released it: the roles are reversed, and there is no repulsion softmax.

    A momentum key k weighs the queries of its image, p_v = softmax_v( |q_v - k|^2 / t ), without gradient, where
    section 3.2 has one query and weighs its keys. Then 2 t sum_v p_v InfoNCE(q_v; k, the other images' keys), the mean
    over the images and over the two keys: what the code calls RBF, and its default.

    small  small crops besides, eight in the code with `--use-local-crops`. Without any, as all its published commands
           are, there is one query a key, p = 1, and the loss is exactly one half of MoCo v3's
    loss   `cacr` with t_pos = 1/t, t_neg = 1/(2 t) and detach_weights is twice the code's "Euclidean" loss, whose
           cost is half the squared distance, but for its sum over the batch: this is the mean
    """
    towers = predicting_towers(encoder, head, predictor, momentum)
    slots = queries(VIEW, range(2 + small)), keys(VIEW, range(2))
    term = WeighedQueries(each_key_against_other_queries, loss, *slots, weight=two_temperatures(loss) / 2)
    return Method(views={VIEW: 2 + small}, towers=towers, terms=[term], small=small)


class WeighedQueries(Contrast):
    """A contrast in which several queries of an image have one key, and the distant ones count more.

    L = 1/N sum_i sum_v softmax_v( t |q_iv - k_i|^2 ) L_iv, where t is the loss's `t_pos`, or else one over its
    temperature, and the weights carry no gradient. Each triple has the queries of one key, (V N, d), copy after copy.
    """

    def __init__(self, topology: Topology, loss: Loss, *slots: Sequence[Slot], weight: float = 1.0) -> None:
        super().__init__(topology, loss, *slots, weight=weight)
        if is_pooled(loss):
            raise UserError("loss", "pools all queries before a logarithm, so that none can be weighed; give another")
        precision, temperature = option(loss, "t_pos"), option(loss, "temperature")
        if precision is None and temperature is None:
            raise UserError("loss", "has no t_pos and no temperature that queries could be weighed by; give another")
        self.precision = float(precision) if precision is not None else 1 / float(temperature)

    def _share(self, batch: BatchOutputs, triple: Triple) -> Tensor:
        count = len(self.queries) - 1  # those of a key's own copy are not drawn to it
        shape, images = (count, len(triple.query) // count), (triple.total or len(triple.query)) / count
        values = triple.loss(self.loss_at(batch.progress), reduction="none", gather=batch.gather)
        distances = (triple.query - triple.positives[:, 0]).square().sum(1)
        weights = (self.precision * distances.view(shape)).softmax(0).detach()  # (V, N)
        return (weights * values.view(shape)).sum() * (batch.processes / images)
