"""How the loss would find images that it does not learn from: the measures of a step, of a held-out batch."""

from __future__ import annotations

import torch

from manyview.core.negatives import Triple
from manyview.core.sample import Batch, Views
from manyview.diagnose.entropy import T_NEG, entropies
from manyview.diagnose.measures import measure
from manyview.features.embedding_pass import forward
from manyview.methods import BatchOutputs, Contrast, Method

PREFIX = "validation_"


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
        found = BatchOutputs(method(views), batch.ids, batch.index, batch.present, progress=progress)
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
        triples = [each for each in objective.terms[term.name].triples if len(each.query)]
        if isinstance(term, Contrast) and triples:
            within = entropies(batch.outputs[term.queries[0]], batch.ids, batch=len(batch.ids))
            entropy = {"batch_entropy": within.mean, "batch_entropy_limit": within.limit}
            return {**found, **measured_of(term, triples[0]), **entropy}
    return found


def measured_of(term: Contrast, triple: Triple) -> dict[str, float]:
    """`measure` of what a term contrasts, at the loss's own temperature and t_neg, or else at CACR's t_neg."""
    temperature, t_neg = term.option("temperature"), term.option("t_neg")
    return measure(
        triple.query, triple.positives, triple.negatives, present=triple.present,
        temperature=None if temperature is None else float(temperature), t_neg=T_NEG if t_neg is None else t_neg,
    )  # fmt: skip
