"""Bounds of a number, written beside its type where a setting is declared: `Annotated[int, AtLeast(1)]`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from manyview.core.errors import UserError


@dataclass(frozen=True)
class Bound:
    """A condition on a number, in words and as the range that it lies in."""

    words: str
    least: float = -math.inf
    most: float = math.inf
    open: bool = False  # whether the ends do not belong to it

    def allows(self, number: float) -> bool:
        return self.least < number < self.most if self.open else self.least <= number <= self.most


def AtLeast(limit: float) -> Bound:
    return Bound(f"at least {limit}", least=limit)


def AtMost(limit: float) -> Bound:
    return Bound(f"at most {limit}", most=limit)


def Above(limit: float) -> Bound:
    return Bound(f"a number above {limit}", least=limit, open=True)


def Below(limit: float) -> Bound:
    return Bound(f"less than {limit}", most=limit, open=True)


def Between(least: float, most: float, what: str = "a number") -> Bound:
    """A number from `least` to `most`, both included."""
    return Bound(f"{what} from {least} to {most}", least, most)


MOST = (1 << 31) - 1  # of anything that numbers are counted by
MOST_WORKERS = 1024  # processes; more are a slip of the hand, and end in a table that is full
Count = Annotated[int, AtLeast(1), AtMost(MOST)]
OptionalCount = Annotated[int | None, AtLeast(1), AtMost(MOST)]
OptionalPositive = Annotated[float | None, Above(0)]
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]


def check_bounds(name: str, value: Any, bounds: Iterable[Bound]) -> None:
    """Refuses a number, or a list with one, that is out of bounds."""
    for number in value if isinstance(value, list | tuple) else (value,):
        for bound in bounds:
            if isinstance(number, int | float) and not bound.allows(number):
                raise UserError(name, f"expected {bound.words}, got {number}")
