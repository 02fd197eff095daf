from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest

from manyview.report.charts import (
    MAX_POINTS,
    Bar,
    Distribution,
    Line,
    bar_chart,
    box_plot,
    heat_map,
    histogram,
    line_chart,
    thin,
    trail_chart,
)
from manyview.report.frame import BOTTOM, HEIGHT, TOP, WIDTH, Axis

X, Y = Axis("epoch", low=0.0), Axis("loss")


def paths(svg: str) -> list[list[tuple[float, float]]]:
    """Places of the lines."""
    found = re.findall(r'<path d="M([^"]*)" class="line', svg)
    return [[tuple(map(float, pair.split())) for pair in path.split("L")] for path in found]  # type: ignore[misc]


def values(svg: str, name: str, pixels: list[float]) -> list[float]:
    """As the page's script reads them off."""
    match = re.search(f'data-{name}="([^"]*)"', svg)
    assert match is not None
    low, high, start, end, log = map(float, match[1].split())
    shares = [(pixel - start) / (end - start) for pixel in pixels]
    return [low * (high / low) ** share if log else low + share * (high - low) for share in shares]


@pytest.mark.parametrize("log", [False, True])
def test_values_can_be_read_off_a_line_as_the_script_does(log: bool) -> None:
    points = [(0.0, 4.0), (1.0, 2.0), (2.0, 0.5)]
    svg = line_chart("Loss", [Line("loss", points)], X, Axis("loss", log=log))
    (path,) = paths(svg)
    assert values(svg, "x", [x for x, _ in path]) == pytest.approx([x for x, _ in points], abs=0.01)
    assert values(svg, "y", [y for _, y in path]) == pytest.approx([y for _, y in points], rel=0.02)


def test_lines_stay_inside_their_chart() -> None:
    svg = line_chart("Loss", [Line("a", [(i, math.sin(i)) for i in range(50)]), Line("b", [(0, 9.0)], 1)], X, Y)
    for x, y in (place for path in paths(svg) for place in path):
        assert 0 <= x <= WIDTH
        assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1


def test_what_is_no_number_is_left_out() -> None:
    svg = line_chart("Loss", [Line("a", [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)])], X, Y)
    assert len(paths(svg)[0]) == 2
    assert "nan" not in svg
    assert "inf" not in svg


def test_a_chart_without_a_single_number_is_still_a_chart() -> None:
    assert line_chart("Loss", [Line("a", [(0, math.nan)])], X, Y).startswith("<svg")
    assert trail_chart("Plane", [Line("a", [])], X, Y).startswith("<svg")


def test_many_points_become_few_that_keep_ends_and_level() -> None:
    points = [(float(i), 3.0 + (-1) ** i) for i in range(10_000)]
    kept = thin(points)
    assert len(kept) == MAX_POINTS
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert sum(y for _, y in kept[1:-1]) / (len(kept) - 2) == pytest.approx(3.0, abs=0.05)
    assert thin(points[:5]) == points[:5]


def test_of_very_many_lines_each_has_few_points() -> None:
    many = [Line(f"run{i}", [(float(step), 1.0) for step in range(1000)]) for i in range(120)]
    assert len(line_chart("Loss", many, X, Y)) < 120 * 24 * 20


def test_several_lines_are_named_at_their_ends_apart_from_one_another() -> None:
    svg = line_chart("kNN", [Line(f"run{i}", [(0, 0.1), (5, 0.5)], i) for i in range(4)], X, Y)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="name', svg))
    assert len(heights) == 4
    assert all(b - a >= 12 for a, b in pairwise(heights))


def test_of_very_many_lines_one_of_each_colour_is_named() -> None:
    svg = line_chart("kNN", [Line(f"run{i}", [(0, 0.1), (5, 0.5)], i % 3) for i in range(30)], X, Y)
    assert sorted(re.findall(r'class="name c\d">(\w+)<', svg)) == ["run0", "run1", "run2"]


def test_a_chart_says_what_it_shows_to_who_cannot_see_it() -> None:
    svg = line_chart("Loss", [Line("training", [(0, 4.0), (5, 2.0)])], X, Y)
    assert 'role="img"' in svg
    assert 'aria-label="Loss. training: from 4 to 2"' in svg


def test_a_trail_has_a_ring_where_it_begins_and_a_dot_where_it_ends() -> None:
    svg = trail_chart("Plane", [Line("run", [(-1.0, 2.0), (-3.0, 1.0)])], Axis("uniformity"), Axis("alignment"))
    assert svg.count('class="ring') == svg.count('class="dot') == 1


def test_hostile_names_are_text() -> None:
    svg = line_chart("<b>", [Line("<i>", [(0, 1.0)]), Line("</svg>", [(0, 2.0)])], X, Y)
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert svg.count("</svg>") == 1


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


def heights(svg: str) -> list[float]:
    """Of the steps of the first histogram, in pixels above the axis."""
    match = re.search(r'd="M[\d.]+ ([\d.]+)([VH\d.]*)" class="area', svg)
    assert match is not None
    floor = float(match[1])
    return [floor - float(y) for y in re.findall(r"V([\d.]+)H", match[2])]


def test_bars_of_a_histogram_are_as_high_as_their_shares() -> None:
    svg = histogram("H", [Distribution("a", [0.1] * 30 + [0.9] * 10)], Axis("x", low=0.0, high=1.0))
    found = [height for height in heights(svg) if height > 0.5]
    assert len(found) == 2
    assert abs(found[0] / found[1] - 3) < 0.05


def test_what_is_no_number_is_passed_over() -> None:
    svg = histogram("H", [Distribution("a", [float("nan"), 0.5, 0.6])], Axis("x"))
    assert "nan" not in svg


def test_all_values_the_same_still_make_a_histogram() -> None:
    assert max(heights(histogram("H", [Distribution("a", [0.5] * 50)], Axis("x")))) > 100


def test_a_box_lies_over_the_middle_half_of_its_values() -> None:
    svg = box_plot("B", [Distribution("a", [i / 100 for i in range(101)])], Axis("x", low=0.0, high=1.0))
    x, width = map(float, re.search(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg).groups())  # type: ignore[union-attr]
    low, high = map(float, re.search(r'd="M([\d.]+) [\d.]+H([\d.]+)" class="line', svg).groups())  # type: ignore[union-attr]
    whole = (high - low) / 0.8
    assert abs(width / whole - 0.5) < 0.02
    assert abs((x - low) / whole - 0.15) < 0.02
    assert "a: median 0.5" in svg
