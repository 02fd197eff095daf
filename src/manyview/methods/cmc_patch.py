"""Patch-based contrast: what an encoder says of a whole view against what the first layers say of its patches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from manyview import losses
from manyview.encoders import Encoder, Towers, heads
from manyview.encoders.map_heads import MapHead
from manyview.methods.cmc import Graph, edges_of
from manyview.methods.method import VIEW, Head, Loss, Method
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import query_against_positions

POSITIONS = "positions"


def cmc_patch(
    encoders: Mapping[str, Encoder],
    *,
    graph: Graph = "full",
    core: str | None = None,
    layer: str | None = None,
    head: Head = partial(heads.linear, dim_out=64),
    loss: Loss = partial(losses.info_nce, temperature=0.1),
) -> Method:
    """CMC with sub-patches (B.2): the last layer of one view against all positions of the other's feature maps.

    graph  as in `cmc`: "full": both directions of each two views; "core": of the core with each other view
    core   the view that the others are contrasted with; the first unless named
    layer  whose feature maps have the patches; unless named the last with at least 7 x 7 positions. With strided crops
           (encoder.crop) it is "crops": each position is a crop that was seen alone
    head   makes the head of the last layer and that of the positions, which share one

    Negatives are the positions of the batch's other images; there is no memory. With one view this is `deep_infomax`.
    """
    if len(encoders) == 1:
        ((view, _),) = encoders.items()
        return _made(encoders, [(view, view)], layer, head, loss)
    edges = [(one, other) for (one, _), (other, _) in edges_of(list(encoders), graph, core, copies=1)]
    return _made(encoders, [pair for i, j in edges for pair in ((i, j), (j, i))], layer, head, loss)


def deep_infomax(
    encoder: Encoder,
    *,
    layer: str | None = None,
    head: Head = partial(heads.linear, dim_out=64),
    loss: Loss = partial(losses.info_nce, temperature=0.1),
) -> Method:
    """Deep InfoMax, local, with InfoNCE (Hjelm et al., ICLR 2019): as `cmc_patch`, with one view.

    An image's embedding is told by the patches of the image itself, among those of other images.
    """
    return _made(encoder, [(VIEW, VIEW)], layer, head, loss)


def _made(
    encoder: Encoder | Mapping[str, Encoder],
    directions: list[tuple[str, str]],
    layer: str | None,
    head: Head,
    loss: Loss,
) -> Method:
    towers = Towers(encoder, head, heads={POSITIONS: MapHead(layer, head)})
    terms = [
        Contrast(
            query_against_positions, loss, queries(whole, 0), queries(patches, 0, POSITIONS),
            name=f"{whole} to {patches}",
        )
        for whole, patches in directions
    ]  # fmt: skip
    views = dict.fromkeys((view for pair in directions for view in pair), 1)
    return Method(views=views, towers=towers, terms=terms)
