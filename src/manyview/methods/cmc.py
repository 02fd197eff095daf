"""Contrastive multiview coding: an encoder a view, any number of views, each two of them contrasted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from manyview import losses, memories
from manyview.core.bounds import Count
from manyview.core.errors import UserError, hint
from manyview.encoders import Encoder, Slot, Towers, heads
from manyview.encoders.momentum import constant
from manyview.memories import Memory
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method, Momentum, UnknownView
from manyview.methods.moco import momentum_towers
from manyview.methods.pirl import Share, jigsaw_heads, jigsaw_terms
from manyview.methods.terms import Contrast, keys, queries
from manyview.methods.topologies import core_view, full_graph, query_against_keys

Graph = Literal["full", "core"]
Node = tuple[str, int]
"""A copy of a view."""
Edge = tuple[Node, Node]


def cmc(
    encoders: Mapping[str, Encoder],
    *,
    graph: Graph = "full",
    core: str | None = None,
    copies: Count = 1,
    joint: bool = True,
    geometry: Literal["shared", "own"] = "shared",
    jigsaw: Share = 0.0,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.07),
    memory: MakeMemory = partial(memories.batch),
) -> Method:
    """CMC (Tian et al., ECCV 2020): the sum over edges of a graph of views, of the loss in both directions (Eq. 3).

    graph     "full": each two views (Eq. 8); "core": the core with each other view (Eq. 7)
    core      the view that the others are contrasted with; the first unless named
    copies    augmented copies of each view, which are then the nodes of the graph: with one view and K copies it is the
              "CMC (K)" that the CACR paper compares with, whose Table 1 counts K (K - 1) / 2 pairs
    joint     all copies of a view go through its encoder in one pass; false: one pass each
    geometry  "shared": all views of a copy have one crop and flip, as in CMC; "own": each view draws its own
    jigsaw    + PIRL (Table 9): weight of a jigsaw of each view, of the other terms 1 - jigsaw; PyContrast's is 0.5
    memory    one a view. `batch`: positives and negatives are the step's embeddings, with gradient on both sides, as
              Eq. 2 prints. `bank`: both come from a memory bank of the other view, as in section 3.4 and the authors'
              code, where gradient reaches the query alone, which is steadier; it needs more epochs than images are few
    """
    towers = Towers(encoders, head, heads=jigsaw_heads(head, jigsaw), joint=joint)
    kept = {view: memory(towers.dim) for view in encoders}
    terms = _contrasts(loss, kept, queries, edges_of(list(encoders), graph, core, copies), weight=1 - jigsaw)
    terms += jigsaw_terms(encoders, jigsaw, loss, kept, queries, copies)
    return Method(views=dict.fromkeys(encoders, copies), towers=towers, terms=terms, memories=kept, geometry=geometry)


def cmc_moco(
    encoders: Mapping[str, Encoder],
    *,
    graph: Graph = "full",
    core: str | None = None,
    copies: Count = 1,
    joint: bool = False,
    bn_splits: Count = 1,
    geometry: Literal["shared", "own"] = "shared",
    jigsaw: Share = 0.0,
    momentum: Momentum = partial(constant, start=0.999),
    head: Head = partial(heads.mlp, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(memories.queue, size=16384, enqueue="each"),
) -> Method:
    """CMC with MoCo (Table 9; CMCv2 of HobbitLong/PyContrast): a momentum tower and a queue a view.

    A query of view 1 meets the key of view 2 and queue 2, a query of view 2 the key of view 1 and queue 1; summed.

    graph   "full": each two views (Eq. 8); "core": the core with each other view (Eq. 7)
    core    the view that the others are contrasted with; the first unless named
    copies  augmented copies of each view, as in `cmc`
    joint   all copies of a view go through its encoders in one pass; false: one pass each
    jigsaw  + PIRL (Table 9): weight of a jigsaw of each view, of the other terms 1 - jigsaw; PyContrast's is 0.5
    """
    further = jigsaw_heads(head, jigsaw)
    towers = momentum_towers(encoders, head, momentum, bn_splits, joint=joint, heads=further)
    kept = {view: memory(towers.dim) for view in encoders}
    terms = _contrasts(loss, kept, keys, edges_of(list(encoders), graph, core, copies), weight=1 - jigsaw)
    terms += jigsaw_terms(encoders, jigsaw, loss, kept, keys, copies)
    return Method(views=dict.fromkeys(encoders, copies), towers=towers, terms=terms, memories=kept, geometry=geometry)


def npid(
    encoder: Encoder,
    *,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.07),
    memory: MakeMemory = partial(memories.bank, m=4096),
) -> Method:
    """Instance discrimination (Wu et al., CVPR 2018): one copy of an image against its own vector in a memory bank."""
    towers = Towers(encoder, head)
    kept = memory(towers.dim)
    if not kept.per_image:
        raise UserError("memory", "an image's only positive is its own vector in a memory bank; choose bank")
    term = Contrast(query_against_keys, loss, queries(VIEW, 0), queries(VIEW, 0), memory=kept)
    return Method(views={VIEW: 1}, towers=towers, terms=[term], memories={VIEW: kept})


def _contrasts(
    loss: Loss,
    kept: Mapping[str, Memory],
    keys: Callable[[str, int], Sequence[Slot]],
    edges: Sequence[Edge],
    *,
    weight: float,
) -> list[Contrast]:
    """Both directions of every edge; a query meets the memory of the key's view."""
    several = len({copy for edge in edges for _, copy in edge}) > 1
    return [
        Contrast(
            query_against_keys, loss, queries(*query), keys(*key), memory=kept[key[0]],
            name=f"{_name(query, several)} to {_name(key, several)}", weight=weight,
        )
        for edge in edges
        for query, key in (edge, edge[::-1])
    ]  # fmt: skip


def edges_of(views: Sequence[str], graph: Graph, core: str | None, copies: int) -> list[Edge]:
    """The edges of a graph whose nodes are copies of views: `full_graph` (Eq. 8) or `core_view` (Eq. 7)."""
    if core is not None and core not in views:
        raise UnknownView("core", f"there is no view {core!r}; {hint(core, views)}")
    if core is not None and graph != "core":
        raise UserError("core", "a full graph has none; give --method.graph core, or leave it out")
    nodes = [(view, copy) for view in views for copy in range(copies)]
    middle = [node for node in nodes if node[0] == (core or views[0])]
    edges = core_view(nodes, middle) if graph == "core" else full_graph(nodes)
    if not edges:
        raise UserError("views", f"expected two or more to contrast, got {', '.join(views)} alone")
    return edges


def _name(node: Node, several: bool) -> str:
    view, copy = node
    return f"{view} {copy}" if several else view
