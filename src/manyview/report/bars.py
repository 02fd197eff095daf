"""Charts by class: bars below one another, and a square table that is darker where numbers are larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manyview.report.frame import (
    TOP,
    WIDTH,
    Axis,
    colour_class,
    label_beside,
    label_width,
    mean,
    rows_chart,
    shorten,
    svg_chart,
)
from manyview.report.html import Html, tag
from manyview.report.scale import Scale

ROW = 22
AFTER = 48  # pixels for the number after a bar
WRITTEN = 12  # classes up to which a table has room for its numbers


@dataclass(frozen=True)
class Bar:
    """One labelled bar, with a mark on it where another value is to be compared."""

    name: str
    value: float
    mark: float | None = None
    colour: int = 0


def bar_chart(title: str, rows: Sequence[Bar], axis: Axis, *, mark: str = "") -> Html:
    """Draws bars from 0."""
    texts = "; ".join(f"{row.name} {axis.format(round(row.value, 3))}" for row in rows)
    description = f"{title}: {texts}" + (f"; marked: {mark}" if mark else "")
    values = [0.0, *(row.value for row in rows), *(row.mark or 0.0 for row in rows)]

    def draw(number: int, y: float, xs: Scale) -> Html:
        return _bar(rows[number], y, xs, axis)

    names = [row.name for row in rows]
    return rows_chart(description, names, axis, values, draw, step=ROW, max_label=150, right=AFTER)


def heat_map(title: str, shares: Sequence[Sequence[float]], names: Sequence[str], head: str) -> Html:
    """Draws a row and a column a name, with a share from 0 to 1 in each cell."""
    left = label_width(names, 110)
    side = (WIDTH - left - 8) / len(names)
    bottom = TOP + side * len(names)
    cells = [
        _cell(share, left + side * column, TOP + side * row, side, f"{names[row]}, {names[column]}: {share:.0%}")
        for row, each in enumerate(shares)
        for column, share in enumerate(each)
    ]
    beside = [label_beside(name, left - 6, TOP + side * (number + 0.5)) for number, name in enumerate(names)]
    below = [_slanted(name, left + side * (number + 0.5), bottom + 10) for number, name in enumerate(names)]
    upper = tag("text", head, x=left, y=TOP - 10, class_="axis")
    description = f"{title}: {mean([each[row] for row, each in enumerate(shares)]):.0%} on the diagonal on average"
    return svg_chart(description, [upper, cells, beside, below], bottom + 18 + 0.72 * left)


def _bar(row: Bar, y: float, xs: Scale, axis: Axis) -> Html:
    zero, end = xs(0.0), max(xs(row.value), xs(0.0) + 0.5)
    mark = None if row.mark is None else tag("path", d=f"M{xs(row.mark):g} {y - 1:g}v16", class_="mark")
    place = {"x": zero, "y": y, "width": round(end - zero, 1), "height": 14, "rx": 2}
    after = max(end, 0.0 if row.mark is None else xs(row.mark)) + 5
    value = tag("text", axis.format(round(row.value, 3)), x=round(after, 1), y=y + 11, class_="tick")
    bar = tag("rect", class_=f"bar {colour_class(row.colour)}", **place)
    return tag("g", tag("title", row.name), label_beside(row.name, zero - 6, y + 7), bar, mark, value)


def _cell(share: float, x: float, y: float, side: float, description: str) -> Html:
    place = {"x": round(x, 1), "y": round(y, 1), "width": round(side - 1, 1), "height": round(side - 1, 1)}
    rect = tag("rect", tag("title", description), class_="cell", fill_opacity=round(0.05 + 0.95 * share, 3), **place)
    if side * WRITTEN < WIDTH - 110 - 8 or share < 0.005:
        return rect
    middle = {"x": round(x + side / 2, 1), "y": round(y + side / 2 + 3.5, 1), "text_anchor": "middle"}
    return tag("g", rect, tag("text", f"{100 * share:.0f}", class_="tick on" if share > 0.5 else "tick", **middle))


def _slanted(name: str, x: float, y: float) -> Html:
    turn = f"translate({x:.1f} {y:.1f}) rotate(-45)"
    return tag("text", shorten(name), transform=turn, text_anchor="end", class_="tick")
