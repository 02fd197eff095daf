from __future__ import annotations

import pytest
import torch

from manyview.core.errors import UserError
from manyview.methods.embeddings import Embeddings

ROWS = [torch.randn(3, 4) for _ in range(2)]


def test_without_ids_each_row_is_an_image_and_the_index_is_the_id() -> None:
    plain = Embeddings(ROWS)
    assert plain.ids.tolist() == plain.index.tolist() == [0, 1, 2]
    named = Embeddings(ROWS, torch.tensor([7, 8, 9]))
    assert named.index is named.ids
    assert Embeddings(list(torch.stack(ROWS))).queries[1].equal(ROWS[1])


def test_where_one_side_can_be_missing_the_other_has_masks_too() -> None:
    here = torch.tensor([True, False, True])
    found = Embeddings(ROWS, keys=ROWS[:1], keys_present=[here])
    assert found.present is not None
    assert [each.tolist() for each in found.present] == [[True] * 3] * 2
    with pytest.raises(UserError, match="present: needs all copies"):
        found.needs_all()
    Embeddings(ROWS).needs_all()


def test_keys_are_vectors_like_the_queries_or_maps() -> None:
    assert Embeddings(ROWS, keys=[torch.randn(3, 5, 2, 2)]).keys[0].shape == (3, 5, 2, 2)
    with pytest.raises(UserError, match=r"keys: expected 1 or more of one shape \(3, 4\)"):
        Embeddings(ROWS, keys=[torch.randn(3, 5)])


def test_fewer_copies_than_are_needed_are_refused() -> None:
    with pytest.raises(UserError, match="queries: expected 3 or more"):
        Embeddings(ROWS).needs_all(3)
