"""Every way in which negatives can be given, on small random inputs, and the comparison with an oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from tests.losses import oracle

N, D = 9, 3  # nine queries fill more than one tile of eight
TINY = 64  # entries of a tile, so that these few pairs need several
EXACT = 1e-9


class Batch(NamedTuple):
    query: Tensor  # (N, D)
    positives: Tensor  # (N, K, D)
    negatives: Negatives
    leaves: dict[str, Tensor]  # what wants a gradient

    def met(self) -> oracle.Met:
        return oracle.met(self.query, self.negatives)


Options = dict[str, Any]  # of a loss
Layout = Callable[[Tensor, torch.Generator], Negatives]


def normal(generator: torch.Generator, *shape: int, grad: bool = False) -> Tensor:
    """Vectors of about unit length, none of exactly that."""
    x = torch.randn(*shape, dtype=torch.float64, generator=generator).div(math.sqrt(shape[-1]))
    return x.requires_grad_(grad)


def integers(generator: torch.Generator, high: int, *shape: int) -> Tensor:
    return torch.randint(high, shape, generator=generator)


def queue(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 7, D))


def shared_keys(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 7, D, grad=True))


def shared_keys_with_ids(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 8, D, grad=True), torch.arange(8) % 5, torch.arange(N) % 6)


def long_queue(query: Tensor, g: torch.Generator) -> Negatives:
    """More columns than the narrowest tile has."""
    return Negatives(normal(g, 260, D), torch.arange(260) % 50, torch.arange(N))


def batch(query: Tensor, g: torch.Generator) -> Negatives:
    ids = torch.arange(N) % 5
    return Negatives(query, ids, ids)


def batch_of_one_image(query: Tensor, g: torch.Generator) -> Negatives:
    """No key of the batch counts, for any query: what is left comes from elsewhere."""
    ids = torch.zeros(N, dtype=torch.long)
    return Negatives(query, ids, ids) + queue(query, g)


def batch_under_other_ids(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(query, torch.arange(N), torch.arange(N) + 1)


def copied_batch(query: Tensor, g: torch.Generator) -> Negatives:
    ids = torch.arange(N) % 5
    return Negatives(query * 1.0, ids, ids)


def halves(query: Tensor, g: torch.Generator) -> Negatives:
    ids = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4])
    return Negatives(query, ids, ids, split=(4, 4))


def halves_cut_at_two_places(query: Tensor, g: torch.Generator) -> Negatives:
    ids = torch.arange(N) % 5
    return Negatives(query, ids, ids, split=(4, 6))


def halves_without_ids(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(query, split=(4, 4))


def split_keys(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 7, D, grad=True), torch.arange(7) % 4, torch.arange(N) % 5, split=(4, 3))


def own_keys(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, N, 6, D, grad=True))


def own_keys_with_ids(query: Tensor, g: torch.Generator) -> Negatives:
    ids = torch.arange(6).repeat(N, 1) + torch.arange(N)[:, None]
    return Negatives(normal(g, N, 6, D), ids, torch.arange(N) + 2)


def small_bank(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 12, D), index=integers(g, 12, N, 5))


def small_bank_with_ids(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(
        normal(g, 12, D, grad=True),
        torch.arange(12),
        torch.arange(N),
        index=torch.cat([_own(), integers(g, 12, N, 5)], 1),
    )


def large_bank(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(normal(g, 200, D), index=integers(g, 200, N, 5))


def large_bank_with_ids(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(
        normal(g, 200, D, grad=True),
        torch.arange(200),
        torch.arange(N),
        index=torch.cat([_own(), integers(g, 9, N, 5)], 1),
    )


def drawn_from_the_batch(query: Tensor, g: torch.Generator) -> Negatives:
    return Negatives(query, index=integers(g, N, N, 4))


def joined(query: Tensor, g: torch.Generator) -> Negatives:
    """A batch, shared keys that leave nothing for one query, and keys of their own, each counting differently."""
    ids, same = torch.arange(N) % 5, torch.tensor([4, 4, 4])
    stale = Negatives(normal(g, 3, D), same, ids, weight=2.5) + Negatives(normal(g, 3, D, grad=True), same, ids)
    return Negatives(query, ids, ids, weight=0.3) + stale + Negatives(normal(g, N, 2, D, grad=True), weight=0.7)


def _own() -> Tensor:
    return torch.arange(N)[:, None]


LAYOUTS: list[Layout] = [
    queue, shared_keys, shared_keys_with_ids, batch, batch_of_one_image, batch_under_other_ids, copied_batch, halves,
    halves_without_ids, halves_cut_at_two_places, split_keys, own_keys, own_keys_with_ids, small_bank,
    small_bank_with_ids, large_bank, large_bank_with_ids, drawn_from_the_batch, joined,
]  # fmt: skip
SOME: list[Layout] = [shared_keys_with_ids, batch, halves, own_keys, small_bank_with_ids, large_bank_with_ids, joined]

for_every_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
for_some_layouts = pytest.mark.parametrize("layout", SOME, ids=lambda layout: layout.__name__)
for_one_positive_or_three = pytest.mark.parametrize("k", [1, 3], ids=["K=1", "K=3"])


def make(layout: Layout, k: int = 2, seed: int = 0) -> Batch:
    g = torch.Generator().manual_seed(seed)
    query, positives = normal(g, N, D, grad=True), normal(g, N, k, D, grad=True)
    negatives = layout(query, g)
    leaves = {"query": query, "positives": positives}
    for number, source in enumerate(negatives.sources):
        if source.keys.is_leaf and source.keys.requires_grad and source.keys is not query:
            leaves[f"keys {number}"] = source.keys
    return Batch(query, positives, negatives, leaves)


def some_missing(batch: Batch) -> Tensor:
    """(N, K), False for a positive here and there and for all those of the second query, and makes these NaN."""
    present = torch.ones(batch.positives.shape[:2], dtype=torch.bool)
    present[0, -1] = batch.positives.shape[1] == 1
    present[1] = False
    present[5, 0] = batch.positives.shape[1] == 1
    with torch.no_grad():
        batch.positives[~present] = torch.nan
    return present


def gradients(loss: Tensor, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    found = torch.autograd.grad(
        loss, list(leaves.values()), retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(leaves, found, strict=True))


@contextmanager
def many_tiles() -> Iterator[None]:
    """Tiles of a few entries and equal ids found by sorting, as in batches many times as large."""
    with patch("manyview.losses.tiles.TILE", TINY), patch("manyview.losses.id_mask.COMPARED_AT_ONCE", 0):
        yield


def assert_follows(
    compute: Callable[[], Tensor], expected: Tensor | Sequence[Tensor], leaves: dict[str, Tensor], rtol: float = EXACT
) -> None:
    """In one tile and in many, the computed values are the expected ones, and so are their gradients."""
    if not isinstance(expected, Tensor):
        expected = torch.stack(list(expected))
    count = 1 + torch.arange(expected.numel(), dtype=expected.dtype).view(expected.shape)  # values tell apart
    wanted = gradients((expected * count).sum(), leaves)
    for tiles in (nullcontext(), many_tiles()):
        with tiles:
            actual = compute()
            assert_close(actual, expected, rtol, "value")
            found = gradients((actual * count).sum(), leaves)
        for name in leaves:
            assert_close(found[name], wanted[name], rtol, f"gradient by {name}")


def assert_close(actual: Tensor, expected: Tensor, rtol: float, what: str) -> None:
    """Relative to each entry, or to the largest where an entry is what larger ones leave."""
    largest = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(
        actual, expected, rtol=rtol, atol=rtol * max(largest, 1e-3), msg=lambda text: f"{what}: {text}"
    )
