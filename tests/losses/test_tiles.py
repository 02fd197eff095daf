from __future__ import annotations

from itertools import product
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import info_nce
from manyview.losses.streaming import Stream
from manyview.losses.tiles import Buffers, KeysPerQuery, SharedKeys, SmallBankKeys, tiles_for
from tests.losses.layouts import assert_close, gradients, integers, many_tiles, normal


def dense(query: Tensor, keys: Tensor, same: Tensor | None, t: float) -> Tensor:
    """(2, N): log-sum-exp of minus the distances times t and the mean distance, from the whole (N, M) matrix."""
    keys = keys if keys.dim() == 3 else keys[None]
    distances = (query[:, None] - keys).square().sum(-1)
    scores = -t * distances
    if same is not None:
        scores = scores.masked_fill(same, -torch.inf)
    return torch.stack([scores.logsumexp(1), (scores.softmax(1) * distances).sum(1)])


def streamed(query: Tensor, negatives: Negatives, t: float) -> Tensor:
    sums = Stream(query, negatives).softmax(2 * t, -t, value=(-2.0, 1.0))
    return torch.stack([sums.log_sum_exp, sums.mean])


def assert_dense(query: Tensor, negatives: Negatives, wanted: Tensor, leaves: dict[str, Tensor]) -> None:
    found = streamed(query, negatives, 1.3)
    assert_close(found, wanted, 1e-10, "value")
    count = torch.linspace(1, 2, wanted.numel(), dtype=torch.float64).view(wanted.shape)
    expected = gradients((wanted * count).sum(), leaves)
    for name, gradient in gradients((found * count).sum(), leaves).items():
        assert_close(gradient, expected[name], 1e-10, name)


@pytest.mark.parametrize("learns", [True, False], ids=["keys learn", "keys do not"])
@pytest.mark.parametrize(("n", "m"), [(1030, 300), (5, 600), (1030, 7)])
def test_more_queries_and_keys_than_a_tile_has_rows_and_columns(n: int, m: int, learns: bool) -> None:
    g = torch.Generator().manual_seed(11)
    query, keys = normal(g, n, 3, grad=True), normal(g, m, 3, grad=learns)
    query_ids, key_ids = torch.arange(n) % 200, torch.arange(m)
    leaves = {"query": query, "keys": keys} if learns else {"query": query}
    wanted = dense(query, keys, query_ids[:, None] == key_ids, 1.3)
    with many_tiles():
        assert_dense(query, Negatives(keys, key_ids, query_ids), wanted, leaves)


@pytest.mark.parametrize("rows", [30, 400], ids=["small bank", "large bank"])
@pytest.mark.parametrize("learns", [True, False], ids=["bank learns", "bank does not"])
def test_a_bank_row_that_is_drawn_twice_counts_twice(rows: int, learns: bool) -> None:
    g = torch.Generator().manual_seed(12)
    query, bank = normal(g, 40, 3, grad=True), normal(g, rows, 3, grad=learns)
    index = integers(g, 4, 40, 9)
    leaves = {"query": query, "bank": bank} if learns else {"query": query}
    with many_tiles():
        assert_dense(query, Negatives(bank, index=index), dense(query, bank[index], None, 1.3), leaves)


def test_keys_per_query_are_split_between_tiles_too() -> None:
    g = torch.Generator().manual_seed(13)
    query, keys = normal(g, 11, 3, grad=True), normal(g, 11, 13, 3, grad=True)
    with many_tiles():
        assert_dense(query, Negatives(keys), dense(query, keys, None, 1.3), {"query": query, "keys": keys})


def test_a_large_bank_is_gathered_and_a_small_one_multiplied_whole() -> None:
    query, index = torch.zeros(4, 3), torch.zeros(4, 2, dtype=torch.long)
    (small,) = Negatives(torch.zeros(64, 3), index=index).sources
    (large,) = Negatives(torch.zeros(65, 3), index=index).sources
    assert type(tiles_for(query, small, None, None)) is SmallBankKeys
    assert type(tiles_for(query, large, None, None)) is KeysPerQuery


def test_shared_keys_and_keys_per_query_have_their_own_ways() -> None:
    query = torch.zeros(4, 3)
    (shared,) = Negatives(torch.zeros(6, 3)).sources
    (own,) = Negatives(torch.zeros(4, 6, 3)).sources
    assert type(tiles_for(query, shared, None, None)) is SharedKeys
    assert type(tiles_for(query, own, None, None)) is KeysPerQuery


@pytest.mark.parametrize(
    ("negatives", "width"),
    [
        (Negatives(torch.zeros(300, 3)), 300),
        (Negatives(torch.zeros(11, 13, 3)), 13),
        (Negatives(torch.zeros(20, 3), index=torch.zeros(11, 5, dtype=torch.long)), 5),
        (Negatives(torch.zeros(200, 3), index=torch.zeros(11, 5, dtype=torch.long)), 5),
    ],
    ids=["shared", "own", "small bank", "large bank"],
)
def test_tiles_visit_each_pair_once(negatives: Negatives, width: int) -> None:
    visits = torch.zeros(11, width)
    with many_tiles():
        tiles = list(tiles_for(torch.zeros(11, 3), negatives.sources[0], None, None).spans())
    for rows, cols in tiles:
        visits[rows, cols] += 1
    assert len(tiles) > 1
    assert bool((visits == 1).all())


def test_no_matrix_of_all_pairs_is_ever_held() -> None:
    """Neither forward nor backward, whatever the keys are."""
    g = torch.Generator().manual_seed(14)
    x, ids, tile = normal(g, 600, 4, grad=True), torch.arange(600), 2**12
    held: list[int] = []
    get = Buffers.get

    def watching(self: Buffers, number: int, shape: tuple[int, ...], like: Tensor) -> Tensor:
        held.append(torch.Size(shape).numel())
        return get(self, number, shape, like)

    kinds = [
        (Negatives(x, ids, ids), tile),
        (Negatives(x, ids, ids, split=(300, 300)), tile),
        (Negatives(normal(g, 5000, 4), torch.arange(5000), ids), 600 * 256),  # the fewest columns a tile has
        (Negatives(normal(g, 5000, 4, grad=True)), 600 * 256),
        (Negatives(normal(g, 600, 50, 4, grad=True)), tile),
        (Negatives(normal(g, 700, 4, grad=True), index=integers(g, 700, 600, 50)), 2 * tile),
        (Negatives(normal(g, 7000, 4, grad=True), index=integers(g, 700, 600, 50)), tile),
    ]
    for negatives, most in kinds:
        held.clear()
        with patch("manyview.losses.tiles.TILE", tile), patch.object(Buffers, "get", watching):
            torch.autograd.backward(info_nce(x, x.detach()[:, None], negatives))
        assert 0 < max(held) <= most


def test_a_buffer_is_used_again_until_it_is_too_small() -> None:
    buffers, like = Buffers(), torch.zeros(1)
    first = buffers.get(0, (4, 5), like)
    assert buffers.get(0, (2, 3), like).data_ptr() == first.data_ptr()
    assert buffers.get(1, (2, 3), like).data_ptr() != first.data_ptr()
    assert buffers.get(0, (9, 9), like).shape == (9, 9)


def test_a_bank_is_not_copied() -> None:
    """Its rows are read where they lie: a change to them is seen by negatives made before it."""
    query, bank = torch.eye(3), torch.eye(3).repeat(100, 1)
    negatives = Negatives(bank, index=torch.tensor([[1], [2], [0]]))
    before = info_nce(query, query[:, None], negatives)
    bank.copy_(bank.roll(1, 0))
    after = info_nce(query, query[:, None], negatives)
    assert float(after) > float(before) + 0.5


def test_any_mixture_of_tile_sizes_gives_the_same() -> None:
    g = torch.Generator().manual_seed(15)
    query, queue = normal(g, 23, 3, grad=True), normal(g, 290, 3)
    ids = torch.arange(23)
    negatives = Negatives(queue) + Negatives(query, ids, ids)
    wanted = gradients(streamed(query, negatives, 2.0).sum(), {"query": query})["query"]
    for tile, small in product((1, 17, 100, 1000), (0, 2**18)):
        with patch("manyview.losses.tiles.TILE", tile), patch("manyview.losses.id_mask.COMPARED_AT_ONCE", small):
            found = gradients(streamed(query, negatives, 2.0).sum(), {"query": query})["query"]
        assert_close(found, wanted, 1e-11, f"gradient with tiles of {tile}")
