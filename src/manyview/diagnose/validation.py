"""How the loss would find images that it does not learn from: the measures of a step, of a batch kept aside."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyview.core.negatives import Triple
from manyview.diagnose.entropy import T_NEG, entropies
from manyview.diagnose.measures import measure
from manyview.features.embedding_pass import still
from manyview.methods import Method, Seen, Term

PREFIX = "validation_"


@torch.no_grad()
def validation(method: Method, views: Sequence[Tensor], ids: Tensor, *, progress: float = 1.0) -> dict[str, float]:
    """`seen_by_loss` of images (N,) of which training knows nothing, under names that begin with `PREFIX`.

    views (N, C, H, W) each, as many as `method.looks`, made as training makes them. Embedded in eval mode and without
    gradient: weights, running statistics, the momentum tower, the queue and all random numbers stay what they are, and
    so does the mode. Nothing is said of fewer than two images.
    """
    if len(ids.unique()) < 2:
        return {}
    with still(method):
        queries, keys = method([_ready(view, method) for view in views], 0)
    return {PREFIX + name: value for name, value in seen_by_loss(method, queries, keys, ids, progress=progress).items()}


@torch.no_grad()
def seen_by_loss(
    method: Method, queries: Sequence[Tensor], keys: Sequence[Tensor], ids: Tensor, *, progress: float = 1.0
) -> dict[str, float]:
    """The loss of an embedded batch, what `measured_of` tells of it, and its entropy within the batch.

    loss                               as training would compute it, of which the share `progress` is done
    entropy, coupling, and so on       `measure`, against the method's own negatives, a queue for instance
    batch_entropy, batch_entropy_limit `entropies` of the first look, at t_neg = 2 against the batch's other images
                                       alone: the same for every method, and so what CACR's Fig. 3 compares
    """
    triples = method.triples(Seen(list(queries), list(keys), ids))
    within = entropies(queries[0], ids, batch=len(ids))
    return {
        "loss": float(method.objective(triples, progress=progress)),
        **measured_of(*triples[0]),
        "batch_entropy": within.mean,
        "batch_entropy_limit": within.limit,
    }


def measured_of(term: Term, triple: Triple) -> dict[str, float]:
    """`measure` of what a term contrasts, at the loss's own temperature and t_neg, or else at CACR's t_neg."""
    temperature, t_neg = term.option("temperature"), term.option("t_neg")
    return measure(
        triple.query, triple.positives, triple.negatives, present=triple.present,
        temperature=None if temperature is None else float(temperature), t_neg=T_NEG if t_neg is None else t_neg,
    )  # fmt: skip


def _ready(view: Tensor, method: Method) -> Tensor:
    """In the precision of the weights, and in the order that convolutions like."""
    weights = next(method.parameters(), view)
    return view.to(weights).contiguous(memory_format=torch.channels_last)
