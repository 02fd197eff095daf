"""Line charts, and trails through a plane.

A chart says in its attributes which numbers its pixels mean, so that the page's script can read values off its lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from manyview.report.frame import BOTTOM, HEIGHT, LETTER, RIGHT, TOP, Axis, colour_class, grid, mean, shorten, svg_chart
from manyview.report.html import Html, tag
from manyview.report.scale import Scale

MAX_POINTS = 240  # of a line at most: more than there are pixels for
MIN_POINTS = 24
NAMED = 12  # lines whose names there is room for; of more, one of each colour
STEP = 12.5  # pixels between two names
Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart; a dashed one is what others are measured against: a limit, the untrained encoder."""

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
    inside = grid(x, xs, y, ys), [_line(line, xs, ys) for line in series], _names(named, xs, ys)
    return svg_chart(_summary(title, series, y), inside, **readable)


def trail_chart(title: str, series: Sequence[Line], x: Axis, y: Axis) -> Html:
    """Draws trails through a plane: a ring where each begins, a dot where it ends."""
    series, named, xs, ys = _prepared(series, x, y, 0.06)
    trails = [[_line(line, xs, ys), _ends(line, xs, ys)] for line in series if line.points]
    return svg_chart(_summary(title, series, y), [grid(x, xs, y, ys), trails, _names(named, xs, ys)])


def thin(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Thins out to at most so many points, each the mean of its neighbours; the first and the last stay."""
    if len(points) <= most:
        return list(points)
    inner, size = points[1:-1], (len(points) - 2) / (most - 2)
    parts = [inner[round(size * number) : round(size * (number + 1))] for number in range(most - 2)]
    return [points[0], *((mean([a for a, _ in part]), mean([b for _, b in part])) for part in parts), points[-1]]


def _thinned(line: Line, count: int) -> Line:
    """Thins out a line, the more the more lines there are, so that a page of a hundred runs is not large."""
    most = max(MIN_POINTS, MAX_POINTS * NAMED // max(NAMED, count))
    return replace(line, points=thin([each for each in line.points if all(map(math.isfinite, each))], most))


def _prepared(series: Sequence[Line], x: Axis, y: Axis, room: float) -> tuple[list[Line], list[Line], Scale, Scale]:
    """Gives the lines thinned out, those that are named, and the scales of x and y."""
    series = [_thinned(line, len(series)) for line in series]
    named = _named(series) if len(series) > 1 else []
    right = 12 + LETTER * max(len(shorten(line.name)) for line in named) if named else RIGHT
    points = [point for line in series for point in line.points]
    return series, named, x.along([a for a, _ in points], right, room), y.upwards([b for _, b in points])


def _named(series: Sequence[Line]) -> list[Line]:
    drawn = [line for line in series if line.points]
    if len(drawn) <= NAMED:
        return drawn
    return list({line.colour: line for line in reversed(drawn)}.values())[:NAMED]


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
    ends = sorted((_end(line, ys), number) for number, line in enumerate(named))
    places, floor = [], TOP - 4.0
    for y, number in ends:
        floor = max(y + 3.5, floor)
        places.append((floor, number))
        floor += STEP
    over = max(0.0, floor - STEP - (HEIGHT - BOTTOM + 4))
    return [_name(named[number], xs.end + 6, y - over) for y, number in places]


def _end(line: Line, ys: Scale) -> float:
    value = line.points[-1][1]
    return ys(value) if value > 0 or not ys.log else ys.start


def _name(line: Line, x: float, y: float) -> Html:
    kind = f"name {colour_class(line.colour)}" + (" faint" if line.dashed else "")
    return tag("text", shorten(line.name), x=x, y=round(y, 1), class_=kind)


def _numbers(scale: Scale) -> str:
    return f"{scale.low:.6g} {scale.high:.6g} {scale.start:g} {scale.end:g} {int(scale.log)}"


def _summary(title: str, series: Sequence[Line], y: Axis) -> str:
    ends = [(line.name, line.points[0][1], line.points[-1][1]) for line in series if line.points]
    texts = [f"{name}: from {y.format(first)} to {y.format(last)}" for name, first, last in ends]
    return f"{title}. {'; '.join(texts)}"
