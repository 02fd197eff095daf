"""Pretext-invariant representation learning: an image and its jigsaw are one thing; also beside the terms of CMC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated

from manyview import losses, memories
from manyview.core.bounds import Between
from manyview.core.errors import UserError
from manyview.encoders import Encoder, Slot, Towers, heads
from manyview.encoders.towers import JIGSAW
from manyview.memories import Memory
from manyview.methods.method import VIEW, Head, Loss, MakeMemory, Method
from manyview.methods.terms import Contrast, queries
from manyview.methods.topologies import query_against_keys

HEAD = "jigsaw"  # its name
Share = Annotated[float, Between(0, 1, "a share")]


def pirl(
    encoder: Encoder,
    *,
    jigsaw: Share = 0.5,
    head: Head = partial(heads.linear, dim_out=128),
    loss: Loss = partial(losses.info_nce, temperature=0.07),
    memory: MakeMemory = partial(memories.bank, m=4096),
) -> Method:
    """PIRL (Misra & van der Maaten, CVPR 2020): a copy and its jigsaw, each against the image's vector in one bank.

    Both meet the same drawn negatives, and the bank takes in the plain copy. The softmax is HobbitLong/PyContrast's;
    the paper's loss is `nce` with m=32000.

    jigsaw  weight of the jigsaw's term, of the plain one 1 - jigsaw: the paper's lambda, PyContrast's beta
    """
    towers = Towers(encoder, head, heads=jigsaw_heads(head, jigsaw))
    kept = memory(towers.dim)
    if not kept.per_image:
        raise UserError("memory", "an image's only positive is its own vector in a memory bank; choose bank")
    plain = Contrast(
        query_against_keys, loss, queries(VIEW, 0), queries(VIEW, 0), memory=kept, name="plain", weight=1 - jigsaw
    )
    terms = [plain, *jigsaw_terms([VIEW], jigsaw, loss, {VIEW: kept}, queries)]
    return Method(views={VIEW: 1}, towers=towers, terms=terms, memories={VIEW: kept})


def jigsaw_heads(head: Head, weight: float) -> dict[str, Head]:
    """The second head of towers whose jigsaws have this weight: none for 0."""
    return {HEAD: partial(heads.Jigsaw, head=head)} if weight else {}


def jigsaw_terms(
    views: Iterable[str],
    weight: float,
    loss: Loss,
    kept: Mapping[str, Memory],
    keys: Callable[[str, Iterable[int]], Sequence[Slot]],
    copies: int = 1,
) -> list[Contrast]:
    """The jigsaw of each view against the plain copies of the same view and its memory; none for a weight of 0.

    PyContrast scores the jigsaw feature of a view against the bank or queue of that view, not of the other.
    """
    return [
        Contrast(
            query_against_keys, loss, queries(view, JIGSAW, HEAD), keys(view, range(copies)), memory=kept[view],
            name=f"{view} jigsaw", weight=weight,
        )
        for view in (views if weight else ())
    ]  # fmt: skip
