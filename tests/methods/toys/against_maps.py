"""The embedding of one view against all positions of another view's feature map; both from one pass each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from manyview import losses
from manyview.core.negatives import Negatives, Triple
from manyview.encoders import Encoder, Slot, Towers, heads
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.method import Head, Loss, Method
from manyview.methods.terms import Contrast, queries


def against_positions(embedded: Embeddings, memory: Memory) -> list[Triple]:
    """Positives are the positions of the image's own map, negatives those of other images'."""
    maps, ids = embedded.keys[0], embedded.gather(embedded.ids)
    own, everywhere = positions(maps), positions(embedded.gather(maps))
    met = Negatives(everywhere.flatten(0, 1), ids.repeat_interleave(everywhere.shape[1]), embedded.ids)
    return [Triple(embedded.queries[0], own, met, total=len(ids))]


def positions(maps: Tensor) -> Tensor:
    """(N, C, H, W) to unit vectors (N, H W, C)."""
    return F.normalize(maps.flatten(2).transpose(1, 2), dim=2)


def against_maps(
    encoders: Mapping[str, Encoder],
    *,
    layer: str = "stage1",
    head: Head = partial(heads.linear, dim_out=8),
    loss: Loss = partial(losses.info_nce, temperature=0.5),
) -> Method:
    """The first view's embedding against a layer's feature map of the second."""
    first, second = encoders
    maps = Slot("query", second, 0, f"maps.{layer}")
    term = Contrast(against_positions, loss, queries(first, 0), [maps])
    return Method(views=dict.fromkeys(encoders, 1), towers=Towers(encoders, head), terms=[term])
