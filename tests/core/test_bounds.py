"""Bounds: what they allow, and the line about what they do not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from manyview.core.bounds import Above, AtLeast, AtMost, Below, Between, Bound, check_bounds
from manyview.core.errors import UserError


@pytest.mark.parametrize(
    ("bound", "good", "bad", "words"),
    [
        (AtLeast(1), (1, 2, math.inf), (0, 0.9, -math.inf, math.nan), "at least 1"),
        (AtMost(3), (3, -math.inf), (4, math.inf, math.nan), "at most 3"),
        (Above(0), (1e-9, 5), (0, -1, math.inf, math.nan), "a number above 0"),
        (Below(1), (0.99, -1), (1, 2, math.nan), "less than 1"),
        (Between(0, 1), (0, 0.5, 1), (-0.1, 1.1, math.nan), "a number from 0 to 1"),
        (Between(0, 1, "a share"), (1,), (2,), "a share from 0 to 1"),
    ],
)
def test_a_bound_allows_and_refuses_and_says_what_it_wants(
    bound: Bound, good: tuple[float, ...], bad: tuple[float, ...], words: str
) -> None:
    check_bounds("x", good, [bound])
    for number in bad:
        with pytest.raises(UserError) as refused:
            check_bounds("x", number, [bound])
        assert str(refused.value) == f"x: expected {words}, got {number}"


@pytest.mark.parametrize("value", [None, "auto", (), []])
def test_what_is_no_number_has_no_bounds(value: Any) -> None:
    check_bounds("x", value, [AtLeast(1)])


def test_a_number_in_a_list_is_named() -> None:
    with pytest.raises(UserError, match="x: expected at least 1, got 0"):
        check_bounds("x", (3, 0), [AtLeast(1), AtMost(9)])
