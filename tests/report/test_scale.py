from __future__ import annotations

import pytest

from manyview.report.scale import Scale, format_number


def test_ticks_are_round_numbers() -> None:
    assert Scale(0, 1, 0, 100).ticks(4) == [0, 0.25, 0.5, 0.75, 1]
    assert Scale(0, 5, 0, 100).ticks(5) == [0, 1, 2, 3, 4, 5]
    assert Scale(-3.6, -2.9, 0, 100).ticks(4) == [-3.6, -3.4, -3.2, -3.0]
    assert Scale(0.01, 100, 0, 100, log=True).ticks() == [0.01, 0.1, 1, 10, 100]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (0.25, "0.25"), (-3.5, "\N{MINUS SIGN}3.5"), (3e-5, "3e-05"), (1 / 3, "0.333")],
)
def test_numbers_are_said_with_the_digits_that_somebody_reads(value: float, text: str) -> None:
    assert format_number(value) == text
