from __future__ import annotations

import pytest
import torch
from torch import Tensor

from manyview.diagnose.vectors import checked, draw_batches, same_length, unit


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.ones(3), r"x: expected floats \(n, d\), got torch.float32 \(3,\)"),
        (torch.ones(3, 2, dtype=torch.long), r"x: expected floats \(n, d\), got torch.int64 \(3, 2\)"),
        ([[1.0]], r"x: expected floats \(n, d\), got list"),
        (torch.ones(1, 2), r"x: expected 2 or more vectors, got \(1, 2\); give more"),
        (torch.tensor([[1.0], [torch.nan]]), "x: holds NaN or infinite numbers; the encoder that made it has diverged"),
    ],
)
def test_what_is_no_set_of_vectors_is_refused_in_one_line(given: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        checked("x", given, least=2)
    assert "\n" not in str(caught.value)


def test_vectors_of_half_precision_are_widened_and_double_stays_double() -> None:
    assert checked("x", torch.ones(2, 2, dtype=torch.float16)).dtype == torch.float32
    assert checked("x", torch.ones(2, 2, dtype=torch.float64)).dtype == torch.float64


def test_large_numbers_of_half_precision_are_still_numbers() -> None:
    assert len(checked("x", torch.full((100, 2), 6e4, dtype=torch.float16))) == 100


def test_vectors_come_out_at_length_one_and_without_gradient() -> None:
    x = torch.randn(4, 3, 5, requires_grad=True)
    made = unit("x", x, dims=3)
    torch.testing.assert_close(made.norm(dim=-1), torch.ones(4, 3))
    assert not made.requires_grad


def test_vectors_of_another_length_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match=r"keys: expected vectors of length 3, got \(2, 4\)"):
        same_length("keys", torch.ones(2, 4), torch.ones(5, 3))


def test_no_row_is_in_two_batches_and_all_batches_are_full() -> None:
    batches = list(draw_batches(10, 4, seed=1))
    assert [len(batch) for batch in batches] == [4, 4]
    assert len(torch.cat(batches).unique()) == 8
