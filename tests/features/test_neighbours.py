"""The nearest vectors by cosine, against all products at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from manyview.features import neighbours as module
from manyview.features.neighbours import neighbours


def test_they_are_those_of_the_whole_matrix_the_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES", 7)
    monkeypatch.setattr(module, "BANK", 11)
    bank, queries = torch.randn(50, 8), torch.randn(20, 8)
    near, rows = neighbours(bank, queries, 13)
    whole = (F.normalize(queries, dim=1) @ F.normalize(bank, dim=1).T).sort(1, descending=True)
    torch.testing.assert_close(near, whole.values[:, :13])
    assert torch.equal(rows, whole.indices[:, :13])


def test_a_query_that_is_in_the_bank_is_no_neighbour_of_itself() -> None:
    bank = torch.randn(30, 8)
    own = torch.tensor([4, 29, 0])
    near, rows = neighbours(bank, bank[own], 29, own=own)
    assert not (rows == own[:, None]).any()
    assert torch.isfinite(near).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_cosines_are_computed_in_float32_at_least(dtype: torch.dtype) -> None:
    bank = torch.randn(30, 8).to(dtype)
    near, _ = neighbours(bank, bank[:2], 1)
    assert near.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(near, torch.ones_like(near))


def test_fewer_than_asked_for_are_all() -> None:
    assert neighbours(torch.randn(3, 4), torch.randn(2, 4), 9)[1].shape == (2, 3)
