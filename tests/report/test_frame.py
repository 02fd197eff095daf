from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyview.report.frame import (
    LABEL,
    WIDTH,
    Axis,
    Scale,
    colour_class,
    format_number,
    grid,
    label_width,
    mean,
    shorten,
    svg_chart,
)


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


NUMBERS = st.floats(-1e9, 1e9)


@given(st.lists(NUMBERS, min_size=1))
def test_all_values_fall_into_the_range_and_a_few_ticks_too(values: list[float]) -> None:
    scale = Axis("").scale(values, 10, 110)
    assert all(10 - 1e-6 <= scale(value) <= 110 + 1e-6 for value in values)
    assert 1 <= len(scale.ticks()) <= 8


@given(st.lists(st.floats(1e-9, 1e9), min_size=1))
def test_on_a_logarithmic_scale_too(values: list[float]) -> None:
    scale = Axis("", log=True).scale(values, 100, 0)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)
    assert 2 <= len(scale.ticks()) <= 8


def test_ends_that_are_given_are_kept_and_the_others_have_room() -> None:
    scale = Axis("", low=0.0).scale([2.0, 4.0], 0, 100)
    assert scale.low == 0.0
    assert scale.high == pytest.approx(4.24)
    tight = Axis("").scale([2.0, 4.0], 0, 100, room=0.0)
    assert (tight.low, tight.high) == (2.0, 4.0)


def test_values_without_any_number_still_make_a_scale() -> None:
    assert Axis("").scale([float("nan")], 0, 100).ticks()
    assert Axis("", log=True).scale([], 0, 100).ticks()


def test_an_axis_writes_numbers_in_its_unit() -> None:
    assert Axis("accuracy", percent=True).format(0.125) == "12.5%"
    assert Axis("loss").format(1234.5) == "1,234"


def test_the_grid_has_its_titles_and_only_numbers_within_its_range() -> None:
    x, y = Axis("epoch <b>", low=0.0), Axis("loss", low=0.0, high=1.0)
    text = "".join(grid(x, x.along([0.0, 10.0]), y, y.upwards([])))
    assert "epoch &lt;b&gt;" in text
    assert set(re.findall('class="tick">([^<]*)<', text)) == {"0", "2", "4", "6", "8", "10", "0.25", "0.5", "0.75", "1"}


def test_a_chart_has_a_description() -> None:
    text = svg_chart('Loss "falls"', [], data_x="1")
    assert text.startswith(f'<svg viewBox="0 0 {WIDTH} ')
    assert 'aria-label="Loss &quot;falls&quot;"' in text
    assert 'data-x="1"' in text


def test_long_labels_are_cut_and_have_bounded_width() -> None:
    assert shorten("cat") == "cat"
    assert len(shorten("c" * 50)) == LABEL
    assert label_width(["c" * 50], 110) == 110
    assert label_width(["c"], 110) == 40


def test_colours_begin_again_after_the_last() -> None:
    assert colour_class(3) == colour_class(13) == "c3"


def test_a_mean_is_over_finite_values() -> None:
    assert mean([1.0, math.nan, 3.0, math.inf]) == 2.0
    assert math.isnan(mean([math.nan]))
