"""Who meets whom in a method: the topologies of `topologies.py`, with negatives from wherever the method has them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from manyview.core.negatives import Negatives, Source, Triple
from manyview.memories import Memory
from manyview.methods import topologies as pairs
from manyview.methods.method import Seen


def every_view(seen: Seen, against: Memory) -> list[Triple]:
    """Each view is a query, all others of its image are positives. SimCLR, DCL, HN-CL."""
    return [_against(triple, against) for triple in pairs.every_view(seen.queries, seen.ids, gather=seen.gather)]


def each_view(seen: Seen, against: Memory) -> list[Triple]:
    """Each view in turn against the same view of other images. CACR section 3.2, AU-CL."""
    return [_against(triple, against) for triple in pairs.each_view(seen.queries, seen.ids, gather=seen.gather)]


def query_against_keys(seen: Seen, against: Memory) -> list[Triple]:
    """One query against all keys of its image; in the batch it meets the other images' keys. MoCo, JCL."""
    met = _met(against, seen.ids, lambda: _of_other_images(seen, torch.cat(seen.keys)))
    return pairs.query_against_keys(seen.queries[0], seen.keys, met)


def query_against_keys_and_queries(seen: Seen, against: Memory) -> list[Triple]:
    """One query against all keys of its image; in the batch it meets the other images' queries. AU-CL with a queue."""
    met = _met(against, seen.ids, lambda: _of_other_images(seen, seen.queries[0]))
    return pairs.query_against_keys(seen.queries[0], seen.keys, met)


def each_query_against_other_keys(seen: Seen, against: Memory) -> list[Triple]:
    """Each view's query against the keys of the other views; in the batch against the other images' keys of them.

    MoCo with a symmetric loss: the sum over the views.
    """
    triples = []
    for view, query in enumerate(seen.queries):
        others = seen.keys[:view] + seen.keys[view + 1 :]
        met = _met(against, seen.ids, lambda others=others: _of_other_images(seen, torch.cat(others)))  # type: ignore[misc]
        triples += pairs.query_against_keys(query, others, met)
    return triples


def each_view_against_keys(seen: Seen, against: Memory) -> list[Triple]:
    """Each view in turn against the keys of the other views; in the batch it meets the same view's other queries.

    CACR Algorithm 3.
    """
    outside, within = against.outside(seen.ids), against.within_batch
    return pairs.each_view_against_keys(
        seen.queries, seen.keys, outside, seen.ids, within_batch=within, gather=seen.gather
    )


def _met(against: Memory, ids: Tensor, batch: Callable[[], Negatives]) -> Negatives:
    """The batch's other images with their weight, and whoever else there is."""
    outside = against.outside(ids)
    if not against.within_batch and outside is not None:
        return outside
    weighed = _weighed(batch(), against.within_batch)
    return weighed if outside is None else outside + weighed


def _against(triple: Triple, against: Memory) -> Triple:
    (own,) = triple.negatives.sources
    assert own.query_ids is not None
    return triple._replace(negatives=_met(against, own.query_ids, lambda: triple.negatives))


def _of_other_images(seen: Seen, vectors: Tensor) -> Negatives:
    repeated = seen.ids.repeat(len(vectors) // len(seen.ids))
    return Negatives(seen.gather(vectors), seen.gather(repeated), seen.ids)


def _weighed(negatives: Negatives, weight: float) -> Negatives:
    if weight == 1:
        return negatives
    (own,) = negatives.sources
    return _of(own, weight)


def _of(source: Source, weight: float) -> Negatives:
    return Negatives(source.keys, source.key_ids, source.query_ids, index=source.index, weight=weight)
