from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import info_nce
from manyview.losses.id_mask import IdMask

listed = patch("manyview.losses.id_mask.COMPARED_AT_ONCE", 0)  # as in a large problem


def tile(id_mask: IdMask, rows: slice, cols: slice) -> Tensor:
    scores = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
    id_mask.fill(scores, rows, cols)
    return scores


def wanted(query_ids: Tensor, key_ids: Tensor, rows: slice, cols: slice) -> Tensor:
    scores = torch.zeros(rows.stop - rows.start, cols.stop - cols.start)
    for i in range(len(scores)):
        for j in range(scores.shape[1]):
            if int(query_ids[rows.start + i]) == int(key_ids[cols.start + j]):
                scores[i, j] = -torch.inf
    return scores


@pytest.mark.parametrize("large", [False, True])
@given(st.data())
def test_exactly_the_pairs_of_equal_ids_are_marked_in_any_tile(large: bool, data: st.DataObject) -> None:
    ids = st.lists(st.integers(-3, 6), min_size=1, max_size=9)
    query_ids, key_ids = (torch.tensor(data.draw(ids)) for _ in range(2))
    top, left = (data.draw(st.integers(0, len(x) - 1)) for x in (query_ids, key_ids))
    rows = slice(top, data.draw(st.integers(top + 1, len(query_ids))))
    cols = slice(left, data.draw(st.integers(left + 1, len(key_ids))))
    with patch("manyview.losses.id_mask.COMPARED_AT_ONCE", 0 if large else 2**18):
        id_mask = IdMask(query_ids, key_ids)
    assert torch.equal(tile(id_mask, rows, cols), wanted(query_ids, key_ids, rows, cols))
    assert id_mask.count.tolist() == [int((key_ids == i).sum()) for i in query_ids]


@listed
def test_ids_that_repeat_too_often_to_be_listed_are_compared_tile_by_tile() -> None:
    query_ids, key_ids = torch.arange(60) % 2, torch.arange(50) % 2  # 1500 equal pairs among 110 vectors: about 14 each
    sparse = IdMask(query_ids, key_ids)
    dense = IdMask(torch.zeros(60, dtype=torch.long), torch.zeros(50, dtype=torch.long))
    for id_mask in (sparse, dense):
        for rows, cols in ((slice(0, 60), slice(0, 50)), (slice(13, 31), slice(7, 8))):
            expected = wanted(id_mask.query_ids, id_mask.key_ids, rows, cols)
            assert torch.equal(tile(id_mask, rows, cols), expected)
    assert dense.count.tolist() == [50] * 60


@pytest.mark.parametrize("large", [False, True])
def test_no_keys_and_no_queries_are_fine(large: bool) -> None:
    none, some = torch.zeros(0, dtype=torch.long), torch.tensor([3, 4])
    with patch("manyview.losses.id_mask.COMPARED_AT_ONCE", 0 if large else 2**18):
        assert IdMask(some, none).count.tolist() == [0, 0]
        assert IdMask(none, some).count.tolist() == []


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("types", [(torch.int32, torch.int64), (torch.int64, torch.int32), (torch.uint8, torch.int64)])
def test_ids_of_different_integer_types_compare(large: bool, types: tuple[torch.dtype, torch.dtype]) -> None:
    ids = torch.tensor([0, 1, 2, 1])
    with patch("manyview.losses.id_mask.COMPARED_AT_ONCE", 0 if large else 2**18):
        id_mask = IdMask(ids.to(types[0]), ids.to(types[1]))
    assert id_mask.count.tolist() == [1, 2, 1, 2]
    assert torch.equal(tile(id_mask, slice(0, 4), slice(0, 4)), wanted(ids, ids, slice(0, 4), slice(0, 4)))


def test_a_key_with_the_query_id_is_skipped() -> None:
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    keys = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    each = info_nce(
        query, query[:, None], Negatives(keys, torch.tensor([5, 6, 7]), torch.tensor([5, 6])), reduction="none"
    )
    first = info_nce(query[:1], query[:1, None], Negatives(keys[1:]))
    second = info_nce(query[1:], query[1:, None], Negatives(keys[[0, 2]]))
    torch.testing.assert_close(each, torch.stack([first, second]))


def test_a_key_with_the_query_id_gets_no_gradient_from_it() -> None:
    query = torch.tensor([[1.0, 0.0]])
    keys = torch.tensor([[0.8, 0.6], [0.6, 0.8]], requires_grad=True)
    loss = info_nce(query, query[:, None], Negatives(keys, torch.tensor([5, 6]), torch.tensor([5])))
    (gradient,) = torch.autograd.grad(loss, keys)
    assert gradient[0].tolist() == [0, 0]
    assert float(gradient[1, 0]) > 0


@pytest.mark.parametrize("bank_size", [6, 200], ids=["small bank", "large bank"])
def test_a_drawn_key_with_the_query_id_is_skipped(bank_size: int) -> None:
    g = torch.Generator().manual_seed(0)
    bank, query = torch.randn(bank_size, 3, generator=g), torch.randn(2, 3, generator=g)
    index = torch.tensor([[0, 4, 5], [1, 1, 3]])
    found = info_nce(
        query,
        query[:, None],
        Negatives(bank, torch.arange(bank_size), torch.tensor([4, 1]), index=index),
        reduction="none",
    )
    first = info_nce(query[:1], query[:1, None], Negatives(bank[[0, 5]]))
    second = info_nce(query[1:], query[1:, None], Negatives(bank[[3]]))
    torch.testing.assert_close(found, torch.stack([first, second]))
