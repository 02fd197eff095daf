from __future__ import annotations

import math
import re

from manyview.report.frame import LABEL, WIDTH, Axis, colour_class, grid, label_width, mean, shorten, svg_chart, within


def test_an_axis_writes_numbers_in_its_unit() -> None:
    assert Axis("accuracy", percent=True).format(0.125) == "12.5%"
    assert Axis("loss").format(1234.5) == "1,234"


def test_the_grid_has_its_titles_and_only_numbers_within_its_range() -> None:
    x, y = Axis("epoch <b>", low=0.0), Axis("loss", low=0.0, high=1.0)
    text = "".join(grid(x, x.along([0.0, 10.0]), y, y.upwards([])))
    assert "epoch &lt;b&gt;" in text
    assert set(re.findall('class="tick">([^<]*)<', text)) == {"0", "2", "4", "6", "8", "10", "0.25", "0.5", "0.75", "1"}
    scale = y.upwards([])
    assert within(scale, [-0.1, 0.0, 0.5, 1.0, 1.1]) == [0.0, 0.5, 1.0]


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
