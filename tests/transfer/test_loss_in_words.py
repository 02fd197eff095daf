"""What a loss did, in words."""

from __future__ import annotations

import pytest

from manyview.transfer.loss_in_words import loss_in_words


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([2.0 / (1 + step) for step in range(100)], "the loss fell from"),
        ([2.0 - 0.018 * step for step in range(100)], "still falling"),
        ([1.0 + step for step in range(100)], "rose from"),
        ([1.0] * 100, "hardly fell"),
        ([1.0], "the loss was 1, and was logged once"),
    ],
)
def test_it_says_whether_a_loss_fell(losses: list[float], told: str) -> None:
    assert told in loss_in_words(losses)


def test_a_loss_that_has_settled_is_not_said_to_be_falling() -> None:
    assert "still" not in loss_in_words([2.0 / (1 + step) if step < 50 else 0.04 for step in range(100)])
