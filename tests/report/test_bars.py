from __future__ import annotations

import re

from manyview.report.bars import Bar, bar_chart, heat_map
from manyview.report.frame import Axis

AXIS = Axis("same class", low=0.0, percent=True)


def test_bars_are_as_long_as_their_values() -> None:
    svg = bar_chart("Purity", [Bar("a", 0.4), Bar("b", 0.1, mark=0.2)], AXIS, mark="before training")
    long, short = (float(width) for width in re.findall(r'width="([\d.]+)" height="14"', svg))
    assert abs(long / short - 4) < 0.05
    assert svg.count('class="mark"') == 1
    assert "Purity: a 40%; b 10%; marked: before training" in svg


def test_a_bar_of_nothing_is_still_drawn() -> None:
    assert bar_chart("Purity", [Bar("a", 0.0)], AXIS).count("<rect") == 1


def test_a_table_has_a_cell_for_each_pair_darker_where_it_is_larger() -> None:
    svg = heat_map("Confusion", [[0.75, 0.25], [0.0, 1.0]], ["cat", "dog"], "true, said")
    opacity = [float(found) for found in re.findall(r'fill-opacity="([\d.]+)"', svg)]
    assert len(opacity) == 4
    assert opacity[3] > opacity[0] > opacity[1] > opacity[2]
    assert "88% on the diagonal on average" in svg
    assert re.findall(r'text-anchor="middle">(\d+)<|class="tick(?: on)?"[^>]*>(\d+)<', svg)


def test_long_names_of_classes_are_cut_and_hostile_ones_are_text() -> None:
    svg = heat_map("Confusion", [[1.0, 0.0], [0.0, 1.0]], ["<b>" * 40, "dog"], "true, said")
    assert "<b>" not in svg
    assert "\N{HORIZONTAL ELLIPSIS}" in svg


def test_of_many_classes_the_numbers_are_left_out() -> None:
    many = [[1.0 if a == b else 0.0 for a in range(20)] for b in range(20)]
    assert ">100<" not in heat_map("Confusion", many, [str(i) for i in range(20)], "")
