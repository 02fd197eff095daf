"""Charts of distributions: histograms over one another, boxes below one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from manyview.report.frame import (
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    colour_class,
    grid,
    label_beside,
    mean,
    rows_chart,
    shorten,
    svg_chart,
)
from manyview.report.html import Html, tag
from manyview.report.scale import Scale

BINS = 32
ROW = 20


@dataclass(frozen=True)
class Distribution:
    """One distribution of a chart; a pale or dashed one is what others are measured against."""

    name: str
    values: Sequence[float]
    colour: int = 0
    pale: bool = False


def histogram(title: str, groups: Sequence[Distribution], x: Axis) -> Html:
    """Draws the share of each group in equal bins."""
    bins = max(8, min(BINS, min(len(group.values) for group in groups) // 5))
    xs = x.along([value for group in groups for value in group.values])
    shares = [_shares(group.values, xs, bins) for group in groups]
    y = Axis("share", 0.0, 1.08 * max(max(each) for each in shares), percent=True)
    ys = y.upwards([])
    drawn = [_steps(group, each, xs, ys) for group, each in zip(groups, shares, strict=True)]
    names = [_key(group, number) for number, group in enumerate(groups)] if len(groups) > 1 else []
    texts = "; ".join(f"{group.name}: mean {x.format(mean(group.values))}" for group in groups)
    return svg_chart(f"{title}. {texts}", [grid(x, xs, y, ys), drawn, names])


def box_plot(title: str, rows: Sequence[Distribution], axis: Axis) -> Html:
    """Draws a line over the middle eight tenths of each row, a box over the middle half, and the median."""
    texts = "; ".join(f"{row.name}: median {axis.format(_quantile(row.values, 0.5))}" for row in rows)
    values = [value for row in rows for value in row.values]

    def draw(number: int, y: float, xs: Scale) -> Html:
        return _box(rows[number], y, xs)

    return rows_chart(f"{title}. {texts}", [row.name for row in rows], axis, values, draw, step=ROW, max_label=170)


def _shares(values: Sequence[float], xs: Scale, bins: int) -> list[float]:
    counts = [0] * bins
    for value in values:
        if math.isfinite(value):
            counts[min(bins - 1, max(0, int((value - xs.low) / (xs.high - xs.low) * bins)))] += 1
    return [count / max(1, len(values)) for count in counts]


def _steps(group: Distribution, shares: Sequence[float], xs: Scale, ys: Scale) -> Html:
    width = (xs.high - xs.low) / len(shares)
    corners = [f"V{ys(share):g}H{xs(xs.low + width * (number + 1)):g}" for number, share in enumerate(shares)]
    kind = f"area {colour_class(group.colour)}" + (" dashed" if group.pale else "")
    return tag("path", d=f"M{xs.start:g} {ys.start:g}{''.join(corners)}V{ys.start:g}", class_=kind)


def _key(group: Distribution, number: int) -> Html:
    place = {"x": WIDTH - RIGHT, "y": TOP + 4 + 14 * number, "text_anchor": "end"}
    return tag("text", shorten(group.name), class_=f"name {colour_class(group.colour)}", **place)


def _box(row: Distribution, y: float, xs: Scale) -> Html:
    low, first, middle, third, high = (xs(_quantile(row.values, share)) for share in (0.1, 0.25, 0.5, 0.75, 0.9))
    kind = colour_class(row.colour) + (" faint" if row.pale else "")
    whiskers = tag("path", d=f"M{low:g} {y + 6:g}H{high:g}", class_=f"line {kind}")
    box = tag("rect", x=first, y=y, width=max(1, round(third - first, 1)), height=12, rx=2, class_=f"box {kind}")
    median = tag("path", d=f"M{middle:g} {y - 1:g}v14", class_=f"median {kind}")
    return tag("g", label_beside(row.name, xs.start - 6, y + 6), whiskers, box, median)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(value for value in values if math.isfinite(value)) or [math.nan]
    return ordered[round(share * (len(ordered) - 1))]
