"""What negatives do to a query: their weights and entropy (CACR), and the coupling q_B of the gradient (DCL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.distributed import no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.diagnose.vectors import draw_batches, same_length, unit
from manyview.losses.checks import Inputs, average, check_positive
from manyview.losses.streaming import Stream

T_NEG = 2.0  # CACR's t^- on ImageNet, and with one positive on CIFAR-10; for losses that have none of their own


@dataclass(frozen=True, eq=False)
class Entropies:
    """Conditional entropies H(X-|X) of the queries of some batches.

    each   (m,) of each query
    limit  the most that their mean could be: ln of the number of negatives
    """

    each: Tensor
    limit: float

    @property
    def mean(self) -> float:
        return float(self.each.double().mean())


def conditional_entropy(stream: Stream, t_neg: float) -> Tensor:
    """H(X-|X) of each query, (N,), CACR Eq. 8: the entropy of the weights softmax_j(-t_neg |q_i - n_ij|^2).

    At most ln of the number of negatives, where all weigh the same (the paper's ln(M - 1) counts the image itself
    among M). Falls when some negatives come to matter more than others.
    """
    sums = stream.softmax(2 * t_neg, -t_neg, value=(2 * t_neg, -t_neg))
    return sums.log_sum_exp - sums.mean


@torch.no_grad()
def entropies(
    query: Tensor, ids: Tensor | None = None, *, batch: int, t_neg: float = T_NEG, seed: int = 0
) -> Entropies:
    """Computes CACR's Fig. 3 to 5: H(X-|X), Eq. 8, in batches of queries that are each other's negatives (Eq. 5).

    H_i = - sum_j w_ij ln w_ij,  w_ij = softmax over j != i of -t_neg |q_i - q_j|^2

    query (n, d), made unit length here; ids (n,): the images they show, each its own if left out. Give vectors of
    held-out images, one augmented copy of each. Batches are drawn by the seed, and queries that do not fill a last one
    are left out; the largest possible value, ln(batch - 1), depends on the batch, so compare runs at the same one.

    It is largest where all distances are equal: for vectors spread evenly, and also for vectors that are all the same,
    as those of an untrained network nearly are. Read it together with the uniformity.
    """
    query = unit("query", query, least=2)
    check_positive("t_neg", t_neg)
    if ids is not None and ids.shape != (len(query),):
        raise UserError("ids", f"expected ({len(query)},) for query {tuple(query.shape)}, got {tuple(ids.shape)}")
    ids = torch.arange(len(query), device=query.device) if ids is None else ids
    batches = [(query[rows], ids[rows]) for rows in draw_batches(len(query), batch, seed)]
    streams = [Stream(vectors, Negatives(vectors, images, images)) for vectors, images in batches]
    each = torch.cat([conditional_entropy(stream, t_neg) for stream in streams])
    counts = torch.cat([stream.count for stream in streams])
    return Entropies(each, float(counts.double().log().mean()))


@dataclass(frozen=True, eq=False)
class ContrastWeights:
    """Weights of one query's positives and negatives, each summing to 1, and which negatives have the extremes.

    positives  (K,) how hard the query pulls at each positive
    negatives  (M,) how hard it pushes each negative
    strongest  (most,) rows of the negatives, the largest weight first
    weakest    (most,) the smallest weight first
    """

    positives: Tensor
    negatives: Tensor
    strongest: Tensor
    weakest: Tensor


@torch.no_grad()
def contrast_weights(
    query: Tensor, positives: Tensor, negatives: Tensor, *, t_pos: float = 1.0, t_neg: float = T_NEG, most: int = 4
) -> ContrastWeights:
    """Computes CACR's Fig. 6: the weights of a query (d,), its positives (K, d) and negatives (M, d), made unit length.

    positives  softmax_k( t_pos |q - p_k|^2 ),  Eq. 3: those far away count more
    negatives  softmax_j( -t_neg |q - n_j|^2 ), Eq. 4: those nearby count more

    At most `most` strongest and weakest negatives are named; the figure has 4.
    """
    query = unit("query", query, dims=1)
    positives, negatives = unit("positives", positives), unit("negatives", negatives)
    for name, given in (("positives", positives), ("negatives", negatives)):
        same_length(name, given, query)
    check_positive("t_pos", t_pos)
    check_positive("t_neg", t_neg)
    pulled = (t_pos * (query - positives).square().sum(1)).softmax(0)
    pushed = (-t_neg * (query - negatives).square().sum(1)).softmax(0)
    ordered = pushed.argsort(descending=True, stable=True)
    return ContrastWeights(pulled, pushed, ordered[:most], ordered.flip(0)[:most])


def coupling(given: Inputs, stream: Stream, temperature: float) -> float:
    """q_B of DCL (Yeh et al., ECCV 2022, appendix) for what a loss was given: the mean over queries and positives.

    1 - exp(s+ / t) / (exp(s+ / t) + sum_j exp(s_ij / t)). The display of the appendix leaves the positive out of the
    denominator, its proof does not; only with it the gradient is right.
    """
    others = stream.softmax(1 / temperature).log_sum_exp
    factors = torch.sigmoid(others[:, None] - given.similarities() / temperature)
    return float(average(given.over_positives(factors), given.present, "mean", no_gather))


@torch.no_grad()
def couplings(
    first: Tensor, second: Tensor, sizes: Sequence[int], *, temperature: float = 0.1, seed: int = 0
) -> dict[int, Tensor]:
    """q_B of each image in a batch, by the batch's size: its distribution, for DCL's argument about small batches.

    q_B,i = U_i / ( exp(x_i.y_i / t) + U_i ),  U_i = sum over j != i of exp(x_i.x_j / t) + exp(x_i.y_j / t)

    first (n, d) = x = z^(1), second (n, d) = y = z^(2), two augmented copies of the same n images, made unit length
    here; temperature = t. Proposition 1 of the appendix (Yeh et al., ECCV 2022), with the positive in the denominator,
    as in its proof. Batches are drawn by the seed; images that do not fill a last one are left out, so each size has
    n // size * size numbers.
    """
    first, second = unit("first", first, least=2), unit("second", second)
    if first.shape != second.shape:
        raise UserError("second", f"expected {tuple(first.shape)} as the first, got {tuple(second.shape)}")
    check_positive("temperature", temperature)
    return {
        size: torch.cat(
            [_of_batch(first[rows], second[rows], temperature) for rows in draw_batches(len(first), size, seed)]
        )
        for size in sizes
    }


def _of_batch(x: Tensor, y: Tensor, temperature: float) -> Tensor:
    """q_B of the images of one batch, (size,)."""
    ids = torch.arange(len(x), device=x.device)
    negatives = Negatives(torch.cat([x, y]), ids.repeat(2), ids)
    others = Stream(x, negatives).softmax(1 / temperature).log_sum_exp
    return torch.sigmoid(others - (x * y).sum(1) / temperature)
