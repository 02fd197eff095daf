"""The hint for a name that there is not: the nearest that there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def alike(name: object, names: Iterable[str], count: int, *, cutoff: float = 0.6) -> list[str]:
    """At most so many names that are like another, the nearest first."""
    return get_close_matches(str(name), list(names), n=count, cutoff=cutoff)


def nearest(name: object, names: Iterable[str], *, cutoff: float = 0.4) -> str | None:
    """The name most like another; None where none is."""
    return next(iter(alike(name, names, 1, cutoff=cutoff)), None)


def hint(name: object, names: Iterable[str], *, cutoff: float = 0.4) -> str:
    """`did you mean 'dcl'?`, or all there are.

    >>> raise UserError("loss", f"there is none named {name!r}; {hint(name, LOSSES)}")
    """
    there = list(names)
    near = nearest(name, there, cutoff=cutoff)
    return f"there are {', '.join(there)}" if near is None else f"did you mean {near!r}?"
