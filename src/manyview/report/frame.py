"""The frame of every chart: scales, axes with titles, grid lines at round numbers, and a text for screen readers.

All are as wide as a phone, and stand beside one another elsewhere; their colours are the page's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from manyview.report.html import Child, Html, tag

WIDTH, HEIGHT = 380, 236
LEFT, TOP, RIGHT, BOTTOM = 46, 26, 14, 36
COLOURS = 10
LETTER = 6.6  # pixels of one, about
LABEL = 20  # letters of a label at most
ROUND = (1, 2, 2.5, 5, 10)  # steps of an axis, times a power of ten


@dataclass(frozen=True)
class Scale:
    """Maps numbers from `low` to `high` to places from `start` to `end`, evenly or by their logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, count: int = 4) -> list[float]:
        """Gives about `count` round numbers within its range."""
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 5)))]
        wanted = (self.high - self.low) / count
        power = 10 ** math.floor(math.log10(wanted))
        step = power * next(each for each in ROUND if each * power >= wanted * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def format_number(value: float) -> str:
    """Writes a number with the digits that matter: 12,000, 0.25, 3e-05."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: a title with its unit, and a range if it is not the data's own."""

    title: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    percent: bool = False

    def scale(self, values: Iterable[float], start: float, end: float, room: float = 0.06) -> Scale:
        """Makes a scale for all values, with a margin as a share of their range at both ends that are not fixed."""
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not self.log)] or [1.0]
        low, high = min(finite), max(finite)
        if self.log:
            return Scale(10 ** math.floor(math.log10(low)), 10 ** (math.floor(math.log10(high)) + 1), start, end, True)
        low, high = (low if self.low is None else self.low), (high if self.high is None else self.high)
        if high <= low:  # a single value
            low, high, room = low - 0.1 * abs(low) - 1e-9, high + 0.1 * abs(high) + 1e-9, 0.0
        spare = room * (high - low)
        return Scale(low - spare if self.low is None else low, high + spare if self.high is None else high, start, end)

    def along(self, values: Iterable[float], right: float = RIGHT, room: float = 0.0) -> Scale:
        """Makes a scale from the left to the right of a chart."""
        return self.scale(values, LEFT, WIDTH - right, room)

    def upwards(self, values: Iterable[float]) -> Scale:
        return self.scale(values, HEIGHT - BOTTOM, TOP)

    def format(self, value: float) -> str:
        return f"{format_number(round(100 * value, 6))}%" if self.percent else format_number(value)


def svg_chart(description: str, inside: Child, height: float = HEIGHT, **more: object) -> Html:
    """Makes an SVG that a screen reader reads out as `description`."""
    return tag(
        "svg", inside, viewBox=f"0 0 {WIDTH} {height:.0f}", class_="chart", role="img", aria_label=description, **more
    )


def grid(x: Axis, xs: Scale, y: Axis, ys: Scale) -> list[Html]:
    """Draws grid lines with their numbers, and the titles above them."""
    beside = [_tick_beside(y, ys, value, xs.end) for value in ys.ticks()]
    below = [_tick_below(x, xs, value, None, HEIGHT - BOTTOM) for value in xs.ticks(5)]
    upper = tag("text", y.title, x=2, y=13, class_="axis")
    return [*beside, *below, upper, _title_below(x.title, xs.end, HEIGHT)]


def rows_chart(
    description: str,
    rows: Sequence[Any],
    axis: Axis,
    values: Iterable[float],
    draw: Callable[[Any, float, Scale], Html],
    *,
    step: float,
    max_label: float,
    right: float = RIGHT,
) -> Html:
    """Makes a chart of named rows below one another; `draw` gets a row, its y and the scale of the values.

    step: pixels a row; max_label: pixels of the names at most; right: pixels after the scale.
    """
    height = TOP + step * len(rows) + BOTTOM
    xs = axis.scale(values, label_width([row.name for row in rows], max_label), WIDTH - right)
    lines = [_tick_below(axis, xs, value, TOP - 4, height - BOTTOM) for value in xs.ticks(4)]
    drawn = [draw(row, TOP + step * number, xs) for number, row in enumerate(rows)]
    return svg_chart(description, [lines, drawn, _title_below(axis.title, xs.end, height)], height)


def _tick_below(axis: Axis, xs: Scale, value: float, top: float | None, bottom: float) -> Html:
    """Writes a number below the chart, and from `top` on draws a hairline above it."""
    line = None if top is None else tag("path", d=f"M{xs(value):g} {top:g}V{bottom:g}", class_="grid")
    text = tag("text", axis.format(value), x=xs(value), y=bottom + 15, text_anchor="middle", class_="tick")
    return tag("g", line, text)


def _title_below(title: str, end: float, height: float) -> Html:
    return tag("text", title, x=end, y=height - 3, text_anchor="end", class_="axis")


def label_beside(name: str, x: float, y: float) -> Html:
    """Writes the name of a row, left of it."""
    return tag("text", shorten(name), x=round(x, 1), y=round(y + 4, 1), text_anchor="end", class_="tick")


def label_width(names: Sequence[str], most: float) -> float:
    """Computes the pixels that the names of rows need."""
    return min(most, max(40.0, 10 + LETTER * max(len(shorten(name)) for name in names)))


def shorten(name: str) -> str:
    return name if len(name) <= LABEL else f"{name[: LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"


def colour_class(colour: int) -> str:
    """Returns the CSS class for this colour."""
    return f"c{colour % COLOURS}"


def mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _tick_beside(axis: Axis, ys: Scale, value: float, right: float) -> Html:
    line = tag("path", d=f"M{LEFT} {ys(value):g}H{right:g}", class_="grid")
    text = tag("text", axis.format(value), x=LEFT - 6, y=ys(value) + 3.5, text_anchor="end", class_="tick")
    return tag("g", line, text)
