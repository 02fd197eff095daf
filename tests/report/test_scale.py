from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyview.report.scale import Scale, format_number, spanning

NUMBERS = st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS, min_size=1))
def test_all_values_fall_into_the_range_and_a_few_ticks_too(values: list[float]) -> None:
    scale = spanning(values, 10, 110)
    assert all(10 - 1e-6 <= scale(value) <= 110 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks()) <= 8


@given(st.lists(st.floats(1e-9, 1e9), min_size=1))
def test_on_a_logarithmic_scale_too(values: list[float]) -> None:
    scale = spanning(values, 100, 0, log=True)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert 2 <= len(scale.ticks()) <= 8


def test_ends_that_are_given_are_kept_and_the_others_have_room() -> None:
    scale = spanning([2.0, 4.0], 0, 100, low=0.0)
    assert scale.low == 0.0
    assert scale.high == pytest.approx(4.24)
    tight = spanning([2.0, 4.0], 0, 100, room=0.0)
    assert (tight.low, tight.high) == (2.0, 4.0)


def test_ticks_are_round_numbers() -> None:
    assert Scale(0, 1, 0, 100).ticks(4) == [0, 0.25, 0.5, 0.75, 1]
    assert Scale(0, 5, 0, 100).ticks(5) == [0, 1, 2, 3, 4, 5]
    assert Scale(-3.6, -2.9, 0, 100).ticks(4) == [-3.6, -3.4, -3.2, -3.0]
    assert Scale(0.01, 100, 0, 100, log=True).ticks() == [0.01, 0.1, 1, 10, 100]


def test_values_without_any_number_still_make_a_scale() -> None:
    assert spanning([float("nan")], 0, 100).ticks()
    assert spanning([], 0, 100, log=True).ticks()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (0.25, "0.25"), (-3.5, "\N{MINUS SIGN}3.5"), (3e-5, "3e-05"), (1 / 3, "0.333")],
)
def test_numbers_are_said_with_the_digits_that_somebody_reads(value: float, text: str) -> None:
    assert format_number(value) == text
