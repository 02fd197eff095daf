"""The papers' equations as loops over single pairs, in float64, with autograd for the gradients.

Nothing here is fast, stable or shared with the package: each loss is its equation, term by term. `met` spells
`Negatives` out as one list of (key, weight) per query. A loss with one value per query gives these as a list, without
the queries that have no positive; a loss that pools gives a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from manyview.core.negatives import Negatives, Source

Met = list[list[tuple[Tensor, float]]]  # for each query, the negatives that it meets and how often each counts
Number = float | Tensor


def met(query: Tensor, negatives: Negatives) -> Met:
    met: Met = [[] for _ in query]
    for source in negatives.sources:
        for i in range(len(query)):
            for key, key_id in _keys_of(source, i):
                if not _is_own(source, i, key_id):
                    met[i].append((key, source.weight))
    return met


def _keys_of(source: Source, i: int) -> Iterator[tuple[Tensor, int | None]]:
    if source.keys.dim() == 3:
        for j in range(source.keys.shape[1]):
            yield source.keys[i, j], None if source.key_ids is None else int(source.key_ids[i, j])
        return
    for j in _rows_of(source, i):
        yield source.keys[j], None if source.key_ids is None else int(source.key_ids[j])


def _rows_of(source: Source, i: int) -> Sequence[int]:
    rows = len(source.keys)
    if source.index is not None:
        return [int(j) for j in source.index[i]]
    if source.split is not None:
        queries, keys = source.split
        return range(keys, rows) if i < queries else range(keys)
    return range(rows)


def _is_own(source: Source, i: int, key_id: int | None) -> bool:
    return source.query_ids is not None and key_id == int(source.query_ids[i])


def dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum()


def distance(a: Tensor, b: Tensor) -> Tensor:
    """Squared."""
    return dot(a - b, a - b)


def total(terms: Sequence[Tensor]) -> Tensor:
    return sum(terms, start=torch.zeros((), dtype=torch.float64))


def mean(terms: Sequence[Tensor]) -> Tensor:
    return total(terms) / len(terms)


def queries(positives: Tensor, present: Tensor | None) -> Iterator[tuple[int, list[Tensor]]]:
    """The queries that have a positive, each with those it has."""
    for i in range(len(positives)):
        own = [positives[i, m] for m in range(positives.shape[1]) if present is None or bool(present[i, m])]
        if own:
            yield i, own


def info_nce(
    query: Tensor, positives: Tensor, met: Met, *, temperature: Number, present: Tensor | None = None
) -> list[Tensor]:
    """JCL Eq. 1-3."""
    losses = []
    for i, own in queries(positives, present):
        others = total([w * (dot(query[i], n) / temperature).exp() for n, w in met[i]])
        pairs = []
        for k in own:
            score = (dot(query[i], k) / temperature).exp()
            pairs.append(-(score / (score + others)).log())
        losses.append(mean(pairs))
    return losses


def dcl(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    temperature: Number,
    sigma: float | None = None,
    detach_weights: bool = False,
    present: Tensor | None = None,
) -> list[Tensor]:
    """DCL Proposition 2; DCLW with sigma."""
    over_all = mean([(dot(query[i], k) / (sigma or 1)).exp() for i, own in queries(positives, present) for k in own])
    losses = []
    for i, own in queries(positives, present):
        others = total([w * (dot(query[i], n) / temperature).exp() for n, w in met[i]])
        pairs = []
        for k in own:
            weight = torch.ones((), dtype=torch.float64)
            if sigma is not None:
                weight = 2 - (dot(query[i], k) / sigma).exp() / over_all
            pairs.append(-(weight.detach() if detach_weights else weight) * dot(query[i], k) / temperature)
        losses.append(mean(pairs) + others.log())
    return losses


def jcl(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    temperature: Number,
    strength: float,
    present: Tensor | None = None,
) -> list[Tensor]:
    """JCL Eq. 8, with the mean and the covariance of Algorithm 1."""
    losses = []
    for i, own in queries(positives, present):
        mu = torch.stack(own).sum(0) / len(own)
        covariance = torch.zeros(len(mu), len(mu), dtype=torch.float64)
        for k in own:
            covariance = covariance + (k - mu)[:, None] * (k - mu)[None, :] / len(own)
        spread = dot(query[i], torch.stack([dot(row, query[i]) for row in covariance]))
        score = dot(query[i], mu) / temperature
        others = total([w * (dot(query[i], n) / temperature).exp() for n, w in met[i]])
        bound = (score + strength / (2 * temperature**2) * spread).exp() + others
        losses.append(bound.log() - score)
    return losses


SIGN = {"far": 1, "near": -1, "uniform": 0}


def cost_of(cost: str, a: Tensor, b: Tensor) -> Tensor:
    return -dot(a, b) if cost == "inner" else distance(a, b)


def attraction(
    query: Tensor,
    positives: Tensor,
    *,
    t_pos: float,
    cost: str = "euclidean",
    attract: str = "far",
    detach: bool = False,
    present: Tensor | None = None,
) -> list[Tensor]:
    """CACR's L_CA (section 3.2); the sign in the weights is Table 10's."""
    losses = []
    for i, own in queries(positives, present):
        weights = [(SIGN[attract] * t_pos * distance(query[i], p)).exp() for p in own]
        weights = [w.detach() for w in weights] if detach else weights
        losses.append(
            total([w * cost_of(cost, query[i], p) for w, p in zip(weights, own, strict=True)]) / total(weights)
        )
    return losses


def repulsion(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    t_neg: float,
    cost: str = "euclidean",
    repel: str = "near",
    detach: bool = False,
    present: Tensor | None = None,
) -> list[Tensor]:
    """CACR's L_CR (section 3.2)."""
    losses = []
    for i, _ in queries(positives, present):
        weights = [w * (SIGN[repel] * t_neg * distance(query[i], n)).exp() for n, w in met[i]]
        weights = [w.detach() for w in weights] if detach else weights
        costs = [cost_of(cost, query[i], n) for n, _ in met[i]]
        losses.append(-total([w * c for w, c in zip(weights, costs, strict=True)]) / total(weights))
    return losses


def rbf_repulsion(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    t_neg: float,
    t_rbf: float,
    repel: str = "near",
    detach: bool = False,
    present: Tensor | None = None,
) -> Tensor:
    """CACR Eq. 14, second line."""
    kernels = []
    for i, _ in queries(positives, present):
        weights = [w * (SIGN[repel] * t_neg * distance(query[i], n)).exp() for n, w in met[i]]
        weights = [w.detach() for w in weights] if detach else weights
        each = [w * (-t_rbf * distance(query[i], n)).exp() for w, (n, _) in zip(weights, met[i], strict=True)]
        kernels.append(total(each) / total(weights))
    return mean(kernels).log()


def hard_negative(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    temperature: Number,
    beta: float,
    tau_plus: float,
    present: Tensor | None = None,
) -> list[Tensor]:
    """HN-CL as its authors' code has it."""
    losses = []
    for i, own in queries(positives, present):
        count = sum(w for _, w in met[i])
        scores = [dot(query[i], n) / temperature for n, _ in met[i]]
        importance = [w * (beta * s).exp() for s, (_, w) in zip(scores, met[i], strict=True)]
        hard = count * total([u * s.exp() for u, s in zip(importance, scores, strict=True)]) / total(importance)
        lowest = count * (-1 / torch.as_tensor(temperature, dtype=torch.float64)).exp()
        pairs = []
        for k in own:
            score = (dot(query[i], k) / temperature).exp()
            debiased = (hard - tau_plus * count * score) / (1 - tau_plus)
            pairs.append((1 + torch.maximum(debiased, lowest) / score).log())
        losses.append(mean(pairs))
    return losses


def nce(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    population: int,
    partition: float,
    temperature: Number,
    noise: str = "sum",
    present: Tensor | None = None,
) -> list[Tensor]:
    """CMC Eq. 10-11."""
    losses = []
    for i, own in queries(positives, present):
        m = sum(w for _, w in met[i])
        share = m / population  # of noise, m samples of it for one of data
        data = []
        for k in own:
            model = (dot(query[i], k) / temperature).exp() / partition
            data.append(-(model / (model + share)).log())
        rejected = []
        for n, w in met[i]:
            model = (dot(query[i], n) / temperature).exp() / partition
            rejected.append(-w * (share / (model + share)).log())
        losses.append(mean(data) + total(rejected) / (m if noise == "mean" else 1))
    return losses


def nce_partition(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    population: int,
    temperature: float,
    present: Tensor | None = None,
) -> Tensor:
    """CMC appendix B.1: population times the mean over all positives and negatives of the batch."""
    terms, count = [], 0.0
    for i, own in queries(positives, present):
        terms += [(dot(query[i], k) / temperature).exp() for k in own]
        count += len(own)
    for i in range(len(query)):
        terms += [w * (dot(query[i], n) / temperature).exp() for n, w in met[i]]
        count += sum(w for _, w in met[i])
    return population * total(terms) / count


def align_uniform(
    query: Tensor,
    positives: Tensor,
    met: Met,
    *,
    alpha: float,
    t: float,
    align_weight: float,
    uniform_weight: float,
    present: Tensor | None = None,
) -> Tensor:
    """AU-CL."""
    aligned, kernels, count = [], [], 0.0
    for i, own in queries(positives, present):
        aligned.append(mean([distance(query[i], k).sqrt() ** alpha for k in own]))
        kernels += [w * (-t * distance(query[i], n)).exp() for n, w in met[i]]
        count += sum(w for _, w in met[i])
    return align_weight * mean(aligned) + uniform_weight * (total(kernels) / count).log()
