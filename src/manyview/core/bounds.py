"""Bounds of a number, written beside its type where a setting is declared: `Annotated[int, AtLeast(1)]`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from manyview.core.errors import UserError


@dataclass(frozen=True)
class Bound(ABC):
    """A condition on a number, which `str` says in words."""

    limit: float

    @abstractmethod
    def allows(self, number: float) -> bool: ...


class AtLeast(Bound):
    def allows(self, number: float) -> bool:
        return number >= self.limit

    def __str__(self) -> str:
        return f"at least {self.limit}"


class AtMost(Bound):
    def allows(self, number: float) -> bool:
        return number <= self.limit

    def __str__(self) -> str:
        return f"at most {self.limit}"


class Above(Bound):
    def allows(self, number: float) -> bool:
        return self.limit < number < math.inf

    def __str__(self) -> str:
        return f"a number above {self.limit}"


class Below(Bound):
    def allows(self, number: float) -> bool:
        return number < self.limit

    def __str__(self) -> str:
        return f"less than {self.limit}"


@dataclass(frozen=True)
class Between(Bound):
    """A number from `limit` to `most`, both included."""

    most: float
    what: str = "a number"

    def allows(self, number: float) -> bool:
        return self.limit <= number <= self.most

    def __str__(self) -> str:
        return f"{self.what} from {self.limit} to {self.most}"


MOST = (1 << 31) - 1  # of anything that numbers are counted by
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
                raise UserError(name, f"expected {bound}, got {number}")
