"""Scales: from numbers to places in a chart, and to the few round numbers that its axis shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

ROUND = (1, 2, 2.5, 5, 10)


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
        return _powers(self.low, self.high) if self.log else _round_numbers(self.low, self.high, count)


def format_number(value: float) -> str:
    """Writes a number with the digits that somebody reads: 12,000, 0.25, 3e-05."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def _round_numbers(low: float, high: float, count: int) -> list[float]:
    wanted = (high - low) / count
    power = 10 ** math.floor(math.log10(wanted))
    step = power * next(each for each in ROUND if each * power >= wanted * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    every = max(1, math.ceil((last - first) / 5))
    return [10.0**power for power in range(first, last + 1, every)]
