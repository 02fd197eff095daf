"""Two modalities, a tower and a memory bank each, in both directions; images that lack one of them drop out."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from manyview import losses, memories
from manyview.encoders import Encoder, Towers, heads
from manyview.methods.method import Head, Loss, MakeMemory, Method
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import query_against_keys


def two_banks(
    encoders: Mapping[str, Encoder],
    *,
    head: Head = partial(heads.linear, dim_out=8),
    loss: Loss = partial(losses.info_nce, temperature=0.2),
    memory: MakeMemory = partial(memories.bank, m=6),
) -> Method:
    """Each view is contrasted with the bank of the other."""
    towers = Towers(encoders, head)
    first, second = encoders
    banks = {view: memory(towers.dim) for view in encoders}
    terms = [
        Contrast(query_against_keys, loss, queries(i, 0), queries(j, 0), memory=banks[j], name=f"{i} to {j}")
        for i, j in ((first, second), (second, first))
    ]
    return Method(views=dict.fromkeys(encoders, 1), towers=towers, terms=terms, memories=banks)
