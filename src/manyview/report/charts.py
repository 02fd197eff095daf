"""Charts: lines, trails through a plane, bars, heat maps and distributions.

A line chart says in its attributes which numbers its pixels mean, so that the page's script can read values off it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from manyview.report import frame
from manyview.report.frame import BOTTOM, HEIGHT, LETTER, RIGHT, TOP, WIDTH, Axis, Scale, colour_class, mean, shorten
from manyview.report.html import Html, tag

MAX_POINTS = 240  # of a line at most: more than there are pixels for
MIN_POINTS = 24
NAMED = 12  # lines whose names there is room for; of more, one of each colour
STEP = 12.5  # pixels between two names
BAR, BOX = 22, 20  # pixels of a row
AFTER = 48  # pixels for the number after a bar
WRITTEN = 12  # classes up to which a table has room for its numbers
BINS = 32
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart; dashed ones are references: a limit, the untrained encoder."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False


def line_chart(title: str, series: Sequence[Line], x: Axis, y: Axis) -> Html:
    """Draws lines over an axis, each with its name at its end where there are several."""
    series, named, xs, ys = _prepared(series, x, y, 0.0)
    readable: dict[str, Any] = {
        "data_x": _numbers(xs), "data_y": _numbers(ys), "data_over": x.title, "data_percent": int(y.percent) or None,
        "tabindex": 0,
    }  # fmt: skip
    inside = frame.grid(x, xs, y, ys), [_line(line, xs, ys) for line in series], _names(named, xs, ys)
    return frame.svg_chart(_summary(title, series, y), inside, **readable)


def trail_chart(title: str, series: Sequence[Line], x: Axis, y: Axis) -> Html:
    """Draws trails through a plane: a ring where each begins, a dot where it ends."""
    series, named, xs, ys = _prepared(series, x, y, 0.06)
    trails = [[_line(line, xs, ys), _ends(line, xs, ys)] for line in series if line.points]
    return frame.svg_chart(_summary(title, series, y), [frame.grid(x, xs, y, ys), trails, _names(named, xs, ys)])


def thin(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Reduces a line to at most so many points, each the mean of its neighbours; the first and the last stay."""
    if len(points) <= most:
        return list(points)
    inner, size = points[1:-1], (len(points) - 2) / (most - 2)
    parts = [inner[round(size * number) : round(size * (number + 1))] for number in range(most - 2)]
    return [points[0], *((mean([a for a, _ in part]), mean([b for _, b in part])) for part in parts), points[-1]]


def _prepared(series: Sequence[Line], x: Axis, y: Axis, room: float) -> tuple[list[Line], list[Line], Scale, Scale]:
    """Prepares the thinned lines, those that are named, and the scales of x and y.

    The more lines there are, the more they are thinned out, so that a page of a hundred runs stays small.
    """
    most = max(MIN_POINTS, MAX_POINTS * NAMED // max(NAMED, len(series)))
    finite = [[point for point in line.points if all(map(math.isfinite, point))] for line in series]
    series = [replace(line, points=thin(points, most)) for line, points in zip(series, finite, strict=True)]
    named = [line for line in series if line.points] if len(series) > 1 else []
    if len(named) > NAMED:
        named = list({line.colour: line for line in reversed(named)}.values())[:NAMED]
    right = 12 + LETTER * max(len(shorten(line.name)) for line in named) if named else RIGHT
    points = [point for line in series for point in line.points]
    return series, named, x.along([a for a, _ in points], right, room), y.upwards([b for _, b in points])


def _line(line: Line, xs: Scale, ys: Scale) -> Html:
    path = "L".join(f"{xs(a):g} {ys(b):g}" for a, b in line.points if b > 0 or not ys.log)
    kind = f"line {colour_class(line.colour)}" + (" dashed" if line.dashed else "")
    return tag("path", d=f"M{path}" if path else "", class_=kind, data_name=line.name)


def _ends(line: Line, xs: Scale, ys: Scale) -> list[Html]:
    (a, b), (c, d) = line.points[0], line.points[-1]
    first = tag("circle", tag("title", "first"), cx=xs(a), cy=ys(b), r=3.5, class_=f"ring {colour_class(line.colour)}")
    last = tag("circle", tag("title", "last"), cx=xs(c), cy=ys(d), r=4, class_=f"dot {colour_class(line.colour)}")
    return [first, last]


def _names(named: Sequence[Line], xs: Scale, ys: Scale) -> list[Html]:
    """Writes each line's name where it ends, moved apart where they would meet."""
    last = [line.points[-1][1] for line in named]
    ends = sorted((ys(y) if y > 0 or not ys.log else ys.start, number) for number, y in enumerate(last))
    places, floor = [], TOP - 4.0
    for y, number in ends:
        floor = max(y + 3.5, floor)
        places.append((floor, named[number]))
        floor += STEP
    over = max(0.0, floor - STEP - (HEIGHT - BOTTOM + 4))
    kinds = [f"name {colour_class(line.colour)}" + (" faint" if line.dashed else "") for _, line in places]
    return [
        tag("text", shorten(line.name), x=xs.end + 6, y=round(y - over, 1), class_=kind)
        for (y, line), kind in zip(places, kinds, strict=True)
    ]


def _numbers(scale: Scale) -> str:
    return f"{scale.low:.6g} {scale.high:.6g} {scale.start:g} {scale.end:g} {int(scale.log)}"


def _summary(title: str, series: Sequence[Line], y: Axis) -> str:
    ends = [(line.name, line.points[0][1], line.points[-1][1]) for line in series if line.points]
    texts = [f"{name}: from {y.format(first)} to {y.format(last)}" for name, first, last in ends]
    return f"{title}. {'; '.join(texts)}"


@dataclass(frozen=True)
class Bar:
    """One labelled bar, with a mark where there is a value to compare it with."""

    name: str
    value: float
    mark: float | None = None
    colour: int = 0


def bar_chart(title: str, rows: Sequence[Bar], axis: Axis, *, mark: str = "") -> Html:
    """Draws bars from 0."""
    texts = "; ".join(f"{row.name} {axis.format(round(row.value, 3))}" for row in rows)
    description = f"{title}: {texts}" + (f"; marked: {mark}" if mark else "")
    values = [0.0, *(row.value for row in rows), *(row.mark or 0.0 for row in rows)]
    draw = partial(_bar, axis=axis)
    return frame.rows_chart(description, rows, axis, values, draw, step=BAR, max_label=150, right=AFTER)


def heat_map(title: str, shares: Sequence[Sequence[float]], names: Sequence[str], head: str) -> Html:
    """Draws a matrix of shares from 0 to 1, with a named row and column for each."""
    left = frame.label_width(names, 110)
    side = (WIDTH - left - 8) / len(names)
    bottom = TOP + side * len(names)
    cells = [
        _cell(share, left + side * column, TOP + side * row, side, f"{names[row]}, {names[column]}: {share:.0%}")
        for row, each in enumerate(shares)
        for column, share in enumerate(each)
    ]
    beside = [frame.label_beside(name, left - 6, TOP + side * (number + 0.5)) for number, name in enumerate(names)]
    turns = [f"translate({left + side * (n + 0.5):.1f} {bottom + 10:.1f}) rotate(-45)" for n in range(len(names))]
    below = [
        tag("text", shorten(name), transform=turn, text_anchor="end", class_="tick")
        for name, turn in zip(names, turns, strict=True)
    ]
    upper = tag("text", head, x=left, y=TOP - 10, class_="axis")
    description = f"{title}: {mean([each[row] for row, each in enumerate(shares)]):.0%} on the diagonal on average"
    return frame.svg_chart(description, [upper, cells, beside, below], bottom + 18 + 0.72 * left)


def _bar(row: Bar, y: float, xs: Scale, axis: Axis) -> Html:
    zero, end = xs(0.0), max(xs(row.value), xs(0.0) + 0.5)
    mark = None if row.mark is None else tag("path", d=f"M{xs(row.mark):g} {y - 1:g}v16", class_="mark")
    place = {"x": zero, "y": y, "width": round(end - zero, 1), "height": 14, "rx": 2}
    after = max(end, 0.0 if row.mark is None else xs(row.mark)) + 5
    value = tag("text", axis.format(round(row.value, 3)), x=round(after, 1), y=y + 11, class_="tick")
    bar = tag("rect", class_=f"bar {colour_class(row.colour)}", **place)
    return tag("g", tag("title", row.name), frame.label_beside(row.name, zero - 6, y + 7), bar, mark, value)


def _cell(share: float, x: float, y: float, side: float, description: str) -> Html:
    place = {"x": round(x, 1), "y": round(y, 1), "width": round(side - 1, 1), "height": round(side - 1, 1)}
    rect = tag("rect", tag("title", description), class_="cell", fill_opacity=round(0.05 + 0.95 * share, 3), **place)
    if side * WRITTEN < WIDTH - 110 - 8 or share < 0.005:
        return rect
    middle = {"x": round(x + side / 2, 1), "y": round(y + side / 2 + 3.5, 1), "text_anchor": "middle"}
    return tag("g", rect, tag("text", f"{100 * share:.0f}", class_="tick on" if share > 0.5 else "tick", **middle))


@dataclass(frozen=True)
class Distribution:
    """One distribution of a chart; pale or dashed ones are references."""

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
    return frame.svg_chart(f"{title}. {texts}", [frame.grid(x, xs, y, ys), drawn, names])


def box_plot(title: str, rows: Sequence[Distribution], axis: Axis) -> Html:
    """Draws for each row a line over its middle 80%, a box over the middle half, and the median."""
    texts = "; ".join(f"{row.name}: median {axis.format(_quantile(row.values, 0.5))}" for row in rows)
    values = [value for row in rows for value in row.values]
    return frame.rows_chart(f"{title}. {texts}", rows, axis, values, _box, step=BOX, max_label=170)


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
    return tag("g", frame.label_beside(row.name, xs.start - 6, y + 6), whiskers, box, median)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(value for value in values if math.isfinite(value)) or [math.nan]
    return ordered[round(share * (len(ordered) - 1))]
