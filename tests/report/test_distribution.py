from __future__ import annotations

import re

from manyview.report.distribution import Distribution, box_plot, histogram
from manyview.report.frame import Axis


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
