"""Text as it can be shown: names of files and data sets hold anything."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""The text with all that is not a visible character written as an escape: a newline as \n, a lone byte as \xff."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
