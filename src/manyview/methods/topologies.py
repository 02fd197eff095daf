"""Topologies: who is whose positive and negative.

A topology turns the embedded copies of a batch into what losses take: a list of `Triple`. The objective is the sum of
weight * loss over them. Negatives are the batch's other images, of all processes, and what a memory keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import TypeVar

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Triple
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings, check_shapes

Edge = tuple[int, int]
Node = TypeVar("Node")
Topology = Callable[[Embeddings, Memory], list[Triple]]


def every_copy(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Every copy of every image is a query, its other copies are the positives, all copies of other images negatives.

    SimCLR, DCL and HN-CL with two copies; any number V >= 2 works. One triple of V N queries with V - 1 positives each.
    """
    embedded.needs_all(2)
    copies = list(embedded.queries)
    query, keys = _stacked(copies, [embedded.gather(copy) for copy in copies])
    query_ids, key_ids = _stacked([embedded.ids] * len(copies), [embedded.gather(embedded.ids)] * len(copies))
    positives = torch.stack([torch.cat(copies[k:] + copies[:k]) for k in range(1, len(copies))], 1)
    index = torch.cat([embedded.index] * len(copies))
    negatives = _negatives(memory, query_ids, index, embedded.step, partial(Negatives, keys, key_ids, query_ids))
    return [Triple(query, positives, negatives, total=len(key_ids))]


def every_copy_of_a_class(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Every copy of every image is a query; its positive is the mean of all others of its class, and it meets all
    others at all, those of its class among them. SupCon's P(i) and A(i).

    Labels of -1 are none: such an image is a class of its own. One triple of V N queries; since the positive is a mean,
    it is not of unit length.
    """
    embedded.needs_all(2)
    _check_batch_alone(memory)
    if embedded.labels is None:
        raise UserError("labels", "expected those of the images, which decide who is whose positive")
    copies, count = list(embedded.queries), len(embedded.queries)
    classes = torch.where(embedded.labels < 0, -2 - embedded.ids, embedded.labels)
    labels, ids = (embedded.gather(each) for each in (embedded.labels, embedded.ids))
    query, keys = _stacked(copies, [embedded.gather(copy) for copy in copies])
    query_ids, key_ids = _stacked([embedded.ids] * count, [ids] * count)
    key_classes = torch.where(labels < 0, -2 - ids, labels).repeat(count)
    total, members = _class_sums(keys, key_classes, classes.repeat(count))
    positives = (total - query) / (members - 1)
    own = torch.stack([torch.cat(copies[k:] + copies[:k]) for k in range(1, count)], 1)
    negatives = Negatives(keys, key_ids, query_ids) + Negatives(own)
    return [Triple(query, positives[:, None], negatives, total=len(key_ids))]


def each_copy(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Each copy in turn is the query; positives are the other copies, negatives the same copy of other images.

    CACR section 3.2 (which makes one copy the query; this averages over the choice) and AU-CL. V triples of weight 1/V.
    """
    embedded.needs_all(2)
    copies, key_ids = list(embedded.queries), embedded.gather(embedded.ids)
    return [
        Triple(
            query,
            _others(copies, number),
            _against(embedded, memory, embedded.gather(query), key_ids),
            weight=1 / len(copies),
            total=len(key_ids),
        )
        for number, query in enumerate(copies)
    ]


def query_against_keys(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """One query an image against all its keys; in the batch it meets the other images' keys. MoCo, JCL, an edge of CMC.

    Positives that the memory keeps stand for the keys. An image that lacks the query or all keys drops out; where none
    is left, or fewer than two images have keys to meet, there is no triple, rather than an error.
    """
    query, keys = embedded.queries[0], embedded.keys
    if not keys:
        raise UserError("keys", "expected one or more keys an image, got none")
    here, everywhere = _positives_present(embedded)  # (N, K)
    rows, count = None, len(embedded.gather(embedded.ids))
    if here is not None and everywhere is not None:
        rows, count = here.any(1), int(everywhere.any(1).sum())
    query, ids, index = (_rows(each, rows) for each in (query, embedded.ids, embedded.index))
    kept = memory.positives(index)
    positives = _rows(torch.stack(list(keys), 1), rows) if kept is None else kept.to(query.dtype)
    present = None if here is None or positives.shape[1] == 1 else here[rows]

    def batch(weight: float) -> Negatives:
        met = None if embedded.keys_present is None else torch.cat([embedded.gather(e) for e in embedded.keys_present])
        made = torch.cat([embedded.gather(key) for key in keys])
        key_ids = torch.cat([embedded.gather(embedded.ids)] * len(keys))
        return Negatives(_rows(made, met), _rows(key_ids, met), ids, weight=weight)

    negatives = _negatives(memory, ids, index, embedded.step, batch)
    if here is not None and (not count or _too_few(negatives, memory)):
        return []
    return [Triple(query, positives, negatives, present, total=count)]


def query_against_positions(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """One query an image against all positions of its feature map, keys (N, P, d); in the batch it meets those of
    other images' maps. CMC B.2, and with a view's own map the local Deep InfoMax.

    The positives are P, each picked out of the positions of all other images, so that one query has (N - 1) P
    negatives. An image that lacks the query or the map drops out; where nothing is left to meet, there is no triple.
    """
    _check_batch_alone(memory)
    (query,), (positions,) = embedded.queries, embedded.keys
    here, everywhere = _positives_present(embedded)  # (N, 1)
    far, ids = embedded.gather(positions), embedded.gather(embedded.ids)
    rows, total, met = None, len(ids), None
    if here is not None and everywhere is not None and embedded.keys_present is not None:
        rows, total, met = here[:, 0], int(everywhere.sum()), embedded.gather(embedded.keys_present[0])
    query, own, query_ids = (_rows(each, rows) for each in (query, positions, embedded.ids))
    far, ids = _rows(far, met), _rows(ids, met)
    if rows is not None and (not total or not _two_images(ids)):
        return []
    negatives = Negatives(far.flatten(0, 1), ids.repeat_interleave(far.shape[1]), query_ids)
    return [Triple(query, own, negatives, total=total)]


def query_against_keys_and_queries(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """One query an image against all its keys; in the batch it meets the other images' queries. AU-CL with a queue."""
    embedded.needs_all()
    query, key_ids = embedded.queries[0], embedded.gather(embedded.ids)
    negatives = _against(embedded, memory, lambda: embedded.gather(query), key_ids)
    return [Triple(query, torch.stack(list(embedded.keys), 1), negatives, total=len(key_ids))]


def each_key_against_other_queries(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Each copy's key is the positive of all other copies' queries; in the batch they meet other images' keys of it.

    MoCo v3, and MoCo with a symmetric loss: the sum over the keys of the mean over the queries. Queries after as many
    as there are keys are of copies that have none, such as small crops. A triple a key.
    """
    embedded.needs_all(2)
    queries = embedded.queries
    return [
        _queries_against_key(embedded, memory, [*queries[:number], *queries[number + 1 :]], key)
        for number, key in enumerate(embedded.keys)
    ]


def each_query_against_other_keys(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Each copy's query against the keys of all other copies, and in the batch against other images' keys of these.

    CACR with MoCo v3. Queries after as many as there are keys are of copies that have none, such as small crops. V
    triples of weight 1/V.
    """
    embedded.needs_all(2)
    ids, triples = embedded.gather(embedded.ids), []
    for number, query in enumerate(embedded.queries):
        others = [*embedded.keys[:number], *embedded.keys[number + 1 :]]
        far = torch.cat([embedded.gather(key) for key in others])
        negatives = _against(embedded, memory, far, ids.repeat(len(others)))
        triples.append(Triple(query, torch.stack(others, 1), negatives, None, 1 / len(embedded.queries), len(ids)))
    return triples


def each_copy_against_keys(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Each copy in turn is the query; its positives are the momentum keys of the other copies. CACR Algorithm 3.

    In the batch it meets the same copy's other queries: weight 1 in Algorithm 3, 1/2 in AU-CL's MoCo version, whose
    batch pairs are unordered. Queries after as many as there are keys are of copies that have none, such as small
    crops. V triples of weight 1/V.
    """
    embedded.needs_all(2)
    count = max(2, min(len(embedded.queries), len(embedded.keys)))
    check_shapes("keys", embedded.keys, tuple(embedded.queries[0].shape), count=count)
    key_ids = embedded.gather(embedded.ids)
    return [
        Triple(
            query,
            _others(embedded.keys, number),
            _against(embedded, memory, partial(embedded.gather, query), key_ids),
            weight=1 / len(embedded.queries),
            total=len(key_ids),
        )
        for number, query in enumerate(embedded.queries)
    ]


def core_view(views: Iterable[Node], core: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Each view of the core with each other one: the edges of CMC Eq. 7, whose core is one view.

    A view is named by anything that can be compared: a number, a name, or which copy it is of what.
    """
    views, core = list(views), list(core)
    return [(one, other) for one, other in full_graph(views) if (one in core) != (other in core)]


def full_graph(views: Iterable[Node]) -> list[tuple[Node, Node]]:
    """Each two views: the edges of CMC Eq. 8."""
    return list(combinations(views, 2))


def view_pairs(embedded: Embeddings, memory: Memory, *, edges: Iterable[Edge] | None = None) -> list[Triple]:
    """Two views at a time, in both directions: a view of an image against the other view of all images. CMC Eq. 7-8.

    `edges` defaults to the full graph. Both directions of an edge are one triple of weight 2, so that the objective is
    the sum over edges and directions of the mean over images, as in CMC; the engine multiplies each pair once for both.
    (A loss that takes the logarithm of a mean over queries pools both directions before it.)

    An image that lacks a view takes no part in that view's edges, as query or as key. An edge that fewer than two
    images have contributes nothing, rather than an error. (Give an encoder zeros for a missing view, not NaN: its own
    gradient reads them.)
    """
    check_shapes("queries", embedded.queries, least=2)
    _check_batch_alone(memory)
    views, triples = list(embedded.queries), []
    for i, j in full_graph(range(len(views))) if edges is None else _check_edges(edges, len(views)):
        here, everywhere = _both(embedded, i, j)
        rows = [_rows(each, here) for each in (views[i], views[j], embedded.ids)]
        all_rows = rows if embedded.alone else _all_rows(embedded, everywhere, views[i], views[j], embedded.ids)
        (first, second, own), (_, _, ids) = rows, all_rows
        query, keys = _stacked([first, second], all_rows[:2])
        query_ids, key_ids = _stacked([own, own], [ids, ids])
        if here is None or _two_images(ids):
            negatives = Negatives(keys, key_ids, query_ids, split=(len(own), len(ids)))
            triple = Triple(query, torch.cat([second, first])[:, None], negatives, weight=2.0, total=2 * len(ids))
            triples.append(triple)
    return triples


def _negatives(memory: Memory, ids: Tensor, index: Tensor, step: int, batch: Callable[..., Negatives]) -> Negatives:
    """Gives what the memory keeps, then the batch's other images with their weight."""
    kept = memory.negatives(ids, index, step=step)
    if not memory.within_batch:
        if kept is None:
            raise UserError("within_batch", "is 0 and nothing is kept, so that there are no negatives at all; give 1")
        return kept
    others = batch(weight=memory.within_batch)
    return others if kept is None else kept + others


def _against(embedded: Embeddings, memory: Memory, keys: Tensor | Callable[[], Tensor], key_ids: Tensor) -> Negatives:
    """`_negatives` for one query an image; keys as a function are made only if the batch is among the negatives."""

    def batch(weight: float) -> Negatives:
        return Negatives(keys if isinstance(keys, Tensor) else keys(), key_ids, embedded.ids, weight=weight)

    return _negatives(memory, embedded.ids, embedded.index, embedded.step, batch)


def _queries_against_key(embedded: Embeddings, memory: Memory, queries: Sequence[Tensor], key: Tensor) -> Triple:
    """Several queries an image, one below the other, against one key of it."""
    key_ids, count = embedded.gather(embedded.ids), len(queries)
    ids, index = embedded.ids.repeat(count), embedded.index.repeat(count)

    def batch(weight: float) -> Negatives:
        return Negatives(embedded.gather(key), key_ids, ids, weight=weight)

    negatives = _negatives(memory, ids, index, embedded.step, batch)
    return Triple(torch.cat(list(queries)), key.repeat(count, 1)[:, None], negatives, total=count * len(key_ids))


def _too_few(negatives: Negatives, memory: Memory) -> bool:
    """Says whether the batch is all there is to meet, and fewer than two images of it are left."""
    first, *more = negatives.sources
    return bool(memory.within_batch) and not more and first.key_ids is not None and not _two_images(first.key_ids)


def _two_images(ids: Tensor) -> bool:
    """Waits for the device: to be asked only where an image can lack a view."""
    return len(ids.unique()) > 1


def _positives_present(embedded: Embeddings) -> tuple[Tensor | None, Tensor | None]:
    """Tells which positives have their query too: here, and of all processes, (N, K); None where no image lacks any."""
    if embedded.present is None or embedded.keys_present is None:
        return None, None
    masks = [embedded.present[0], *embedded.keys_present]
    query, *keys = masks
    far_query, *far_keys = (embedded.gather(each) for each in masks)
    return torch.stack([query & key for key in keys], 1), torch.stack([far_query & key for key in far_keys], 1)


def _both(embedded: Embeddings, i: int, j: int) -> tuple[Tensor | None, Tensor | None]:
    """Tells which images have views i and j: here, and of all processes; None where no image lacks any."""
    if embedded.present is None:
        return None, None
    first, second = embedded.present[i], embedded.present[j]
    return first & second, embedded.gather(first) & embedded.gather(second)


def _class_sums(rows: Tensor, classes: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The sum (M, d) of the rows of each asked class, and how many there are (M, 1). Nobody waits for a device."""
    ordered = classes.sort().values
    places, wanted = (torch.searchsorted(ordered, each) for each in (classes, asked))  # where a class begins
    sums = torch.zeros_like(rows).index_add(0, places, rows)
    counts = torch.zeros_like(places).index_add(0, places, torch.ones_like(places))
    return sums[wanted], counts[wanted][:, None]


def _all_rows(embedded: Embeddings, mask: Tensor | None, *rows: Tensor) -> list[Tensor]:
    """Gathers those rows of all processes that the mask, of all processes, leaves."""
    return [_rows(embedded.gather(each), mask) for each in rows]


def _others(copies: Sequence[Tensor], number: int) -> Tensor:
    """All copies but one, (N, V - 1, d)."""
    return torch.stack([*copies[:number], *copies[number + 1 :]], 1)


def _rows(rows: Tensor, mask: Tensor | None) -> Tensor:
    return rows if mask is None else rows[mask]


def _stacked(here: list[Tensor], everywhere: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows below one another, here and from all processes; in one process the same tensor, which costs half."""
    joined = torch.cat(here)
    alike = all(far is near for far, near in zip(everywhere, here, strict=True))
    return joined, joined if alike else torch.cat(everywhere)


def _check_batch_alone(memory: Memory) -> None:
    if memory.within_batch != 1 or any(True for _ in memory.buffers()):
        raise UserError("memory", "several views do not share one; contrast them with the batch, or one by one")


def _check_edges(edges: Iterable[Edge], views: int) -> list[Edge]:
    edges = list(edges)
    for i, j in edges:
        if i == j or not (0 <= i < views and 0 <= j < views):
            raise UserError("edges", f"expected two of the {views} views, 0 to {views - 1}, got ({i}, {j})")
    return edges
