"""The words of a verdict on a run's health: its colour, its word and its sentence, of the run or of its views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Level = Literal["healthy", "unknown", "warning", "bad"]
Word = Literal[
    "starting", "not learning yet", "healthy", "diverging", "broken data", "collapsing", "collapsed dimensions",
    "saturated", "not learning",
]  # fmt: skip

IN_WORDS: dict[Word, tuple[str, str]] = {  # of a view
    "collapsing": ("has", "collapsed"),
    "collapsed dimensions": ("has", "collapsed dimensions"),
    "saturated": ("is", "saturated"),
    "not learning": ("is", "not learning"),
    "starting": ("is", "starting"),
    "not learning yet": ("is", "not learning yet"),
    "healthy": ("is", "healthy"),
}
PLURAL = {"has": "have", "is": "are"}


@dataclass(frozen=True)
class Verdict:
    """Says how a run is doing: a colour, a word, and a sentence with the number that led to it and what to do.

    "healthy" is said of a run that has not collapsed and is seen to learn; "unknown" is the level of one of which only
    the first is known ("not learning yet"), or nothing ("starting").

    views  a word for each view, where there are several
    short  the word, with the names of the views that it is about
    """

    level: Level
    word: Word
    text: str
    views: Mapping[str, Word] = field(default_factory=dict)
    short: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", self.short or self.word)


class Sign(NamedTuple):
    """Something wrong: what was seen, with its number, and what to do about it; in which view, if it is about one."""

    level: Level
    word: Word
    seen: str
    advice: str
    view: str = ""

    @property
    def name(self) -> str:
        return of_view(self.word, self.view)


def states(views: Mapping[str, Word]) -> str:
    """Says in one phrase how each view is, those that are alike together."""
    told = []
    for word in dict.fromkeys(views.values()):
        alike, (verb, state) = [view for view, its in views.items() if its == word], IN_WORDS[word]
        told.append(f"{' and '.join(alike)} {verb if len(alike) == 1 else PLURAL[verb]} {state}")
    return ", ".join(told)


def of_view(name: str, view: str) -> str:
    """The name of something that is about a view; the name itself where there is one only."""
    return f"{name}/{view}" if view else name
