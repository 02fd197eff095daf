"""Who meets whom: topologies that turn embedded views into query, positives and negatives.

Views are a list of V tensors (N, d), or one tensor (V, N, d), of the same N images in the same order. `ids` (N,) name
the images; without them each row is its own image. `gather` joins the rows of all processes
(`manyview.core.distributed.gather`). Every topology gives a list of triples; the objective is the sum of weight *
loss(*triple) (`total`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Triple
from manyview.losses import LOSSES, info_nce

Views = Tensor | Sequence[Tensor]
Loss = Callable[..., Tensor]
Edge = tuple[int, int]


def every_view(views: Views, ids: Tensor | None = None, *, gather: Gather = no_gather) -> list[Triple]:
    """Every view of every image is a query, its other views are the positives, all views of other images the negatives.

    SimCLR and DCL with two views; any number V >= 2 works. One triple of V N queries with V - 1 positives each.
    """
    views, ids = _check(views, ids, gather, least=2)
    query, keys = _joined(views, gather)
    query_ids, key_ids = _joined([ids] * len(views), gather)
    negatives = Negatives(keys, key_ids, query_ids)
    positives = torch.stack([torch.cat(views[k:] + views[:k]) for k in range(1, len(views))], 1)
    return [Triple(query, positives, negatives)]


def each_view(views: Views, ids: Tensor | None = None, *, gather: Gather = no_gather) -> list[Triple]:
    """Each view in turn is the query; its positives are the other views, its negatives the same view of other images.

    CACR section 3.2 (which makes one view the query; this averages over the choice) and AU-CL. V triples of weight 1/V.
    """
    views, ids = _check(views, ids, gather, least=2)
    key_ids = gather(ids)
    return [
        Triple(view, _others(views, v), Negatives(gather(view), key_ids, ids), weight=1 / len(views))
        for v, view in enumerate(views)
    ]


def query_against_keys(
    query: Tensor, keys: Views, negatives: Negatives, *, present: Tensor | None = None
) -> list[Triple]:
    """One query (N, d) per image against its K keys; the negatives come from elsewhere, such as a queue. MoCo, JCL.

    `present` (K, N) says which keys exist.
    """
    keys = list(keys)
    if not keys or any(key.shape != query.shape for key in keys):
        shapes = [tuple(key.shape) for key in keys]
        raise UserError("keys", f"expected one or more views of the query's shape {tuple(query.shape)}, got {shapes}")
    return [Triple(query, torch.stack(keys, 1), negatives, None if present is None else present.T)]


def each_view_against_keys(
    views: Views,
    keys: Views,
    negatives: Negatives | None,
    ids: Tensor | None = None,
    *,
    within_batch: float = 0.0,
    gather: Gather = no_gather,
) -> list[Triple]:
    """Each view in turn is the query; its positives are the momentum keys of the other views. CACR Algorithm 3.

    `negatives` come from elsewhere, such as a queue; None if there are none. `within_batch` is the weight of the same
    view's other queries among them: 0 for none, 1 in Algorithm 3, 1/2 in AU-CL's MoCo version, whose batch pairs are
    unordered. V triples of weight 1/V.
    """
    views, ids = _check(views, ids, gather if within_batch else no_gather, least=2)
    keys, key_ids = _check_keys(keys, views), gather(ids) if within_batch else ids
    triples = []
    for v, view in enumerate(views):
        met = negatives
        if within_batch:
            batch = Negatives(gather(view), key_ids, ids, weight=within_batch)
            met = batch if met is None else met + batch
        if met is None:
            raise UserError("negatives", "None, and within_batch is 0, so that there are none at all; give either")
        triples.append(Triple(view, _others(keys, v), met, weight=1 / len(views)))
    return triples


def core_view(views: int, core: int = 0) -> list[Edge]:
    """The core with each other view: the edges of CMC Eq. 7."""
    return [(core, v) for v in range(views) if v != core]


def full_graph(views: int) -> list[Edge]:
    """Each two views: the edges of CMC Eq. 8."""
    return list(combinations(range(views), 2))


def view_pairs(
    views: Views,
    ids: Tensor | None = None,
    *,
    edges: Iterable[Edge] | None = None,
    present: Tensor | None = None,
    gather: Gather = no_gather,
) -> list[Triple]:
    """Two views at a time, in both directions: a view of an image against the other view of all images. CMC Eq. 7-8.

    `edges` defaults to the full graph. Both directions of an edge are one triple of weight 2, so that the objective is
    the sum over edges and directions of the mean over images, as in CMC; the engine multiplies each pair once for both.
    (A loss that takes the logarithm of a mean over queries pools both directions before it.)

    `present` (V, N): an image that lacks a view takes no part in that view's edges, as query or as key, and what stands
    in its place is never read. An edge that fewer than two images have contributes nothing, rather than an error. (Give
    an encoder zeros for a missing view, not NaN: its own gradient reads them.)
    """
    views, ids = _check(views, ids, gather, least=2, present=present)
    triples = []
    for i, j in full_graph(len(views)) if edges is None else _check_edges(edges, len(views)):
        first, second, own = _having(present, i, j, [views[i], views[j], ids])
        query, keys = _joined([first, second], gather)
        query_ids, key_ids = _joined([own, own], gather)
        if present is None or len(key_ids.unique()) > 1:
            negatives = Negatives(keys, key_ids, query_ids, split=(len(own), len(key_ids) // 2))
            triples.append(Triple(query, torch.cat([second, first])[:, None], negatives, weight=2.0))
    return triples


def views_against_keys(
    views: Views,
    keys: Views,
    ids: Tensor | None = None,
    *,
    edges: Iterable[Edge],
    present: Tensor | None = None,
    gather: Gather = no_gather,
) -> list[Triple]:
    """Queries of view i against the keys of view j for each ordered pair (i, j); keys from another tower. MoCo v3.

    The other images' keys of view j are the negatives. One triple of weight 1 per pair: MoCo v3 has (0, 1) and (1, 0).
    `present` as in `view_pairs`.
    """
    views, ids = _check(views, ids, gather, least=1, present=present)
    keys, triples = _check_keys(keys, views), []
    for i, j in _check_edges(edges, len(views)):
        query, key, own = _having(present, i, j, [views[i], keys[j], ids])
        key_ids = gather(own)
        met = gather(key)
        if present is None or len(key_ids.unique()) > 1:
            triples.append(Triple(query, key[:, None], Negatives(met, key_ids, own)))
    return triples


def total(triples: Iterable[Triple], loss: Loss | str, **options: object) -> Tensor:
    """The sum of weight * loss over the triples; 0 if there are none. Vectors are taken as they are, of any length."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UserError("loss", f"expected one of {', '.join(LOSSES)}, got {loss!r}")
        loss = LOSSES[loss]
    if options.get("reduction", "mean") != "mean":
        raise UserError(
            "reduction", f"expected 'mean', got {options['reduction']!r}; for one value per query call the loss itself"
        )
    objective = None
    for query, positives, negatives, present, weight in triples:
        more = options if present is None else {**options, "present": present}
        value = loss(query, positives, negatives, **more)
        value = value if weight == 1 else weight * value
        objective = value if objective is None else objective + value
    return torch.zeros((), requires_grad=True) if objective is None else objective


def contrast(
    views: Views,
    *,
    loss: Loss | str = info_nce,
    ids: Tensor | None = None,
    pairs: Callable[..., list[Triple]] = every_view,
    present: Tensor | None = None,
    gather: Gather = no_gather,
    normalize: bool = True,
    **options: object,
) -> Tensor:
    """A contrastive loss in one call, for your own training loop.

    views: a list of V embeddings (N, d) of the same N images, or a tensor (V, N, d), not (N, V, d); made unit length
    unless normalize=False. loss: a function of `manyview.losses` or its name, with its own arguments as `options`. ids
    (N,): the images' numbers in the data set; without them each row is an image of its own. pairs: who meets whom;
    `every_view` is SimCLR's and DCL's way, `each_view` CACR's, `view_pairs` CMC's. present (V, N): which views exist,
    for `view_pairs`.

    >>> contrast([z1, z2], loss="dcl", temperature=0.1)
    >>> contrast([z1, z2, z3], loss="cacr", pairs=each_view, t_neg=0.9)
    """
    views, more = list(views), {}
    if present is not None:
        if pairs in (every_view, each_view):
            raise UserError("present", "every_view and each_view need all views; give pairs=view_pairs")
        _check(views, ids, gather, least=2, present=present)
        views = [view.masked_fill(~here[:, None], 0) for view, here in zip(views, present, strict=True)]
        more = {"present": present}
    views = [F.normalize(_wide(view), dim=-1) for view in views] if normalize else views
    return total(pairs(views, ids, gather=gather, **more), loss, gather=gather, **options)


def _check(
    views: Views, ids: Tensor | None, gather: Gather, *, least: int, present: Tensor | None = None
) -> tuple[list[Tensor], Tensor]:
    views = list(views)
    _check_tensors("views", *views)
    if ids is not None:
        _check_tensors("ids", ids)
    shapes = [tuple(view.shape) for view in views]
    if len(views) < least or any(view.dim() != 2 for view in views) or len(set(shapes)) != 1:
        got = ", ".join(str(shape) for shape in shapes[:3]) + (", ..." if len(shapes) > 3 else "")
        raise UserError("views", f"expected {least} or more of one shape (N, d), got {len(views)} of shapes {got}")
    if present is not None and (present.dtype != torch.bool or present.shape != (len(views), shapes[0][0])):
        expected = (len(views), shapes[0][0])
        raise UserError("present", f"expected bool (V, N) = {expected}, got {present.dtype} {tuple(present.shape)}")
    if ids is None:
        ids = torch.arange(shapes[0][0], device=views[0].device)
        if gather(ids) is not ids:
            raise UserError("ids", "needed with several processes, whose rows would otherwise pass for the same images")
    if ids.shape != (shapes[0][0],):
        raise UserError("ids", f"expected ({shapes[0][0]},) for views {shapes[0]}, got {tuple(ids.shape)}")
    return views, ids


def _check_tensors(name: str, *given: object) -> None:
    for each in given:
        if not isinstance(each, Tensor):
            raise UserError(None, f"{name}: expected tensors, got {type(each).__name__}")


def _check_keys(keys: Views, views: list[Tensor]) -> list[Tensor]:
    keys = list(keys)
    if [key.shape for key in keys] != [view.shape for view in views]:
        shapes = [tuple(key.shape) for key in keys]
        raise UserError("keys", f"expected {len(views)} views of shape {tuple(views[0].shape)}, got {shapes}")
    return keys


def _check_edges(edges: Iterable[Edge], views: int) -> list[Edge]:
    edges = list(edges)
    for i, j in edges:
        if i == j or not (0 <= i < views and 0 <= j < views):
            raise UserError("edges", f"expected two of the {views} views, 0 to {views - 1}, got ({i}, {j})")
    return edges


def _having(present: Tensor | None, i: int, j: int, rows: list[Tensor]) -> list[Tensor]:
    """The rows of images that have views i and j."""
    return rows if present is None else [each[present[i] & present[j]] for each in rows]


def _wide(view: Tensor) -> Tensor:
    """Made unit length in float32 at least: half precision would round, and lose the guard against a zero vector."""
    _check_tensors("views", view)
    return view.to(torch.promote_types(view.dtype, torch.float32))


def _joined(rows: list[Tensor], gather: Gather) -> tuple[Tensor, Tensor]:
    """Views or ids below one another, here and from all processes; in one process the same tensor, which costs half."""
    everywhere = [gather(each) for each in rows]
    here = torch.cat(rows)
    alike = all(far is near for far, near in zip(everywhere, rows, strict=True))
    return here, here if alike else torch.cat(everywhere)


def _others(views: list[Tensor], v: int) -> Tensor:
    """(N, V - 1, d)"""
    return torch.stack(views[:v] + views[v + 1 :], 1)
