"""Measures of one training step, or of a held-out batch, read off the vectors that the loss was given.

At most `QUERIES` queries are read (the first), and of each source of negatives at most `KEYS` vectors (`PER_QUERY`
where each query has its own), evenly spread over it, each counting for those left out: sums over the negatives are then
estimates, and exact below that.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import add

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import no_gather
from manyview.core.negatives import Negatives, Source, Triple
from manyview.core.sample import Batch, Views
from manyview.diagnose.negatives import T_NEG, conditional_entropy, coupling, entropies
from manyview.diagnose.variance import RANKED, rankme
from manyview.features.embedding_pass import forward
from manyview.losses.checks import average, check_inputs
from manyview.losses.streaming import Stream
from manyview.methods import BatchOutputs, Method, Term
from manyview.methods.method import Objective
from manyview.methods.term import TermOutput, Watched

PREFIX = "validation_"  # of the measures of held-out images
QUERIES = 512
KEYS = 1024  # of keys that all queries share
PER_VIEW = (  # what is told of each of several views, for its health
    "positive_similarity", "negative_similarity", "query_similarity", "rank", "rank_limit", "dim", "negatives",
    "coupling",
)  # fmt: skip
PER_QUERY = 32  # of keys that each query has for itself, which have to be gathered


@torch.no_grad()
def measure(
    query: Tensor,
    positives: Tensor,
    negatives: Negatives,
    *,
    temperature: float | None,
    t_neg: float,
    present: Tensor | None = None,
) -> dict[str, float]:
    """Measures one step: numbers by name, for what the loss was given: query (N, d), positives (N, K, d), negatives.

    alignment, uniformity             Wang & Isola 2020, lower is better
    rank, rank_limit, dim             `rankme`, the most it could be, and the vectors' length d
    positive_similarity, negative_similarity, gap
                                      means of <q, k>, and the difference
    query_similarity                  mean cosine of queries of different images, whatever the negatives are
    entropy, entropy_limit, entropy_share
                                      `conditional_entropy` at t_neg, ln of the number of negatives, and their ratio
    negatives                         how many a query has
    coupling                          q_B at `temperature`; left out without one
    """
    n = min(len(query), QUERIES)
    given = check_inputs(query[:n], positives[:n], None if present is None else present[:n], "mean")
    ids = _images(negatives, n, query.device)
    stream = Stream(given.query, reduce(add, (_thinned(source, n) for source in negatives.sources)))
    positive = float(average(given.over_positives(given.similarities()), given.present, "mean", no_gather))
    negative = float(stream.softmax(0.0, value=(1.0, 0.0)).mean.mean())
    uniform, alike = _among_queries(given.query, ids)
    entropy, limit = float(conditional_entropy(stream, t_neg).mean()), float(stream.count.double().log().mean())
    measured = {
        "alignment": float(average(given.over_positives(given.distances()), given.present, "mean", no_gather)),
        "uniformity": uniform,
        "rank": rankme(given.query),
        "rank_limit": float(min(n, RANKED, query.shape[1])),
        "dim": float(query.shape[1]),
        "positive_similarity": positive,
        "negative_similarity": negative,
        "gap": positive - negative,
        "query_similarity": alike,
        "entropy": entropy,
        "entropy_limit": limit,
        "entropy_share": entropy / limit if limit > 0 else 1.0,
        "negatives": float(stream.count.double().mean()),
    }
    return measured if temperature is None else measured | {"coupling": coupling(given, stream, temperature)}


@torch.no_grad()
def measure_watched(watched: Watched) -> dict[str, float]:
    """Measures what a term without negatives compares, at unit length: those of `measure` that need none.

    negative_similarity and gap       of the other images of the batch, which stand for negatives
    std                               `std_share` of the queries
    dimension_std                     the mean std of dimensions before vectors are made unit length, where the loss
                                      holds it at 1: those that shrink to a point are as unlike at unit length as ever
    prototypes, prototypes_in_use     how many there are, and exp of the entropy of the mean assignment: 1 where all
                                      images are given to one
    assignment_entropy, assignment_entropy_limit
                                      the mean entropy of single assignments, and ln of the number of prototypes, which
                                      it has where every image is given to all alike
    """
    query, positive = (F.normalize(each[:QUERIES].float(), dim=1) for each in (watched.query, watched.positive))
    given = check_inputs(query, positive[:, None], None, "mean")
    uniform, alike = _among_queries(query, watched.ids[:QUERIES])
    near = float(given.similarities().mean())
    measured = {
        "alignment": float(given.distances().mean()),
        "uniformity": uniform,
        "rank": rankme(query),
        "rank_limit": float(min(len(query), RANKED, query.shape[1])),
        "dim": float(query.shape[1]),
        "std": std_share(query),
        "positive_similarity": near,
        "negative_similarity": alike,
        "gap": near - alike,
        "query_similarity": alike,
    }
    if watched.std is not None:
        measured["dimension_std"] = float(watched.std.mean())
    return measured if watched.assigned is None else measured | _assignments(watched.assigned[:QUERIES].double())


def std_share(unit: Tensor) -> float:
    """The mean over dimensions of the std of unit vectors (N, d), times sqrt(d): 0 for one point, 1 for the sphere.

    SimSiam's Fig. 2, there without the factor.
    """
    return float(unit.std(0, correction=0).mean()) * math.sqrt(unit.shape[1])


def _assignments(assigned: Tensor) -> dict[str, float]:
    """Gives what tells whether all images go to one prototype, or each to all of them."""
    count = assigned.shape[1]
    return {
        "prototypes": float(count),
        "prototypes_in_use": float(torch.special.entr(assigned.mean(0)).sum().exp()),
        "assignment_entropy": float(torch.special.entr(assigned).sum(1).mean()),
        "assignment_entropy_limit": math.log(count),
    }


def flat_share(view: Tensor, *, tolerance: float = 1e-3) -> float:
    """The share of pictures (N, C, H, W) of one single colour: no channel varies by more than the tolerance."""
    channels = view.flatten(2)
    span = channels.amax(2) - channels.amin(2)
    return float((span <= tolerance).all(1).double().mean())


def _among_queries(query: Tensor, ids: Tensor) -> tuple[float, float]:
    """Uniformity ln mean exp(-2 |x_i - x_j|^2), and mean cosine, over queries of different images; NaN if none."""
    products = query @ query.T
    same = ids[:, None] == ids
    pairs = same.numel() - int(same.sum())
    if not pairs:
        return math.nan, math.nan
    norms = products.diagonal()
    scores = (4 * products).sub_(2 * norms).sub_(2 * norms[:, None]).masked_fill_(same, -torch.inf)
    uniform = scores.flatten().logsumexp(0) - math.log(pairs)
    lengths = norms.clamp_min(1e-12).rsqrt()
    cosines = (products * lengths * lengths[:, None]).masked_fill_(same, 0)
    return float(uniform), float(cosines.sum() / pairs)


def _images(negatives: Negatives, n: int, device: torch.device) -> Tensor:
    """(n,) which image each query shows: as a source says, or each its own."""
    for source in negatives.sources:
        if source.query_ids is not None:
            return source.query_ids[:n]
    return torch.arange(n, device=device)


def _thinned(source: Source, n: int) -> Negatives:
    """The negatives that a source has for the first n queries, thinned out."""
    keys, key_ids, index, split = source.keys, source.key_ids, source.index, source.split
    query_ids = None if source.query_ids is None else source.query_ids[:n]
    own = index is not None or keys.dim() == 3
    width = index.shape[1] if index is not None else keys.shape[-2]
    every = max(1, math.ceil(width / (PER_QUERY if own else KEYS)))
    if index is not None:
        index = index[:n, ::every]
    elif own:
        keys, key_ids = keys[:n, ::every], None if key_ids is None else key_ids[:n, ::every]
    else:
        keys, key_ids = keys[::every], None if key_ids is None else key_ids[::every]
        split = None if split is None else (min(split[0], n), math.ceil(split[1] / every))
    stands_for = width / math.ceil(width / every) if width else 1.0
    return Negatives(keys, key_ids, query_ids, index=index, weight=source.weight * stands_for, split=split)


def validation(method: Method, views: Views, batch: Batch, *, progress: float = 1.0) -> dict[str, float]:
    """`batch_measures` of held-out images, under names that begin with `PREFIX`.

    views  {name: [copy, ...]}, as many copies as the method takes, made as training makes them

    Embedded in eval mode and without gradient: weights, running statistics, the momentum tower, the memories and all
    random numbers stay what they are, and so does the mode. Nothing is said of fewer than two images, nor where a
    memory holds something for each training image and nothing for these.
    """
    if len(batch.ids.unique()) < 2 or any(memory.per_image for memory in method.memories.values()):
        return {}

    def measures(method: Method, views: Views) -> dict[str, float]:
        found = BatchOutputs(
            method(views), batch.ids, batch.index, batch.present, progress=progress, labels=batch.labels
        )
        return batch_measures(method, found)

    return {PREFIX + name: value for name, value in forward(method, views, read=measures).items()}


@torch.no_grad()
def batch_measures(method: Method, batch: BatchOutputs) -> dict[str, float]:
    """The loss of an embedded batch, what `measured_of` tells of its first contrast, and its entropy within the batch.

    loss                               as training would compute it
    entropy, coupling, and so on       `measure`, against the method's own negatives, a queue for instance
    batch_entropy, batch_entropy_limit `entropies` of the first query, at t_neg = 2 against the batch's other images
                                       alone: the same for every method, and so what CACR's Fig. 3 compares
    """
    objective = method.objective(batch)
    found = {"loss": float(objective.loss)}
    for term in method.terms:
        if measured := measured_of(term, output := objective.terms[term.name]):
            seen = None if output.watched is None else output.watched.rows()
            query, ids = (batch.outputs[term.asks[0]], batch.ids) if seen is None else (seen.query, seen.ids)
            within = entropies(query, ids, batch=len(ids))
            entropy = {"batch_entropy": within.mean, "batch_entropy_limit": within.limit}
            return {**found, **measured, **entropy}
    return found


def measure_step(method: Method, objective: Objective) -> dict[str, float]:
    """Measures a step's contrasts, each against the negatives that its loss has met.

    Those of the first contrast, by the names of `measure`; with queries of several views also "rank/rgb" and the others
    of `PER_VIEW`, of each view's first contrast.
    """
    by_view: dict[str, dict[str, float]] = {}
    for term in method.terms:
        if (view := term.asks[0].view) not in by_view and (found := measured_of(term, objective.terms[term.name])):
            by_view[view] = found
    first = next(iter(by_view.values()), {})
    several = by_view if len(by_view) > 1 else {}
    each = {f"{name}/{view}": found[name] for view, found in several.items() for name in PER_VIEW if name in found}
    return {**first, **each}


@torch.no_grad()
def log_negatives(method: Method, objective: Objective, processes: int = 1) -> dict[str, Tensor]:
    """The mean of log k by term, k negatives a query, where log k - L is a bound on mutual information.

    CMC Eq. 6: k leaves the positive out. Of several processes this one's share, as its losses are.
    """
    found = {}
    for term in method.terms:
        triples = objective.terms[term.name].triples
        if term.bounds_information and sum(each.weight for each in triples) == 1:
            found[term.name] = torch.stack([each.weight * _log_count(each, processes) for each in triples]).sum()
    return found


def _log_count(triple: Triple, processes: int) -> Tensor:
    logs = Stream(triple.query, triple.negatives).count.double().log()
    return logs.sum() * (processes / (triple.total or max(1, len(logs))))


def measured_of(term: Term, output: TermOutput) -> dict[str, float]:
    """`measure` of what a term contrasts, at the loss's own temperature and t_neg, or else at CACR's t_neg.

    Of a term without negatives `measure_watched`; of one that compares no embeddings nothing.
    """
    triple = next((each for each in output.triples if len(each.query)), None)
    if triple is None:
        seen = None if output.watched is None else output.watched.rows()
        return {} if seen is None or not len(seen.query) else measure_watched(seen)
    temperature, t_neg = term.option("temperature"), term.option("t_neg")
    return measure(
        triple.query, triple.positives, triple.negatives, present=triple.present,
        temperature=None if temperature is None else float(temperature), t_neg=T_NEG if t_neg is None else t_neg,
    )  # fmt: skip
