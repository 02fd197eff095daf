"""What the sections of a page are made of: sections, figures, thumbnails, and a word where something cannot be."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from manyview.core.text import reason
from manyview.report.html import Child, Html, tag
from manyview.report.images import Sheet


def section(name: str, title: str, lead: Child, *inside: Child) -> Html:
    """A chapter of the page; the name is where links go."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, inside, id=name)


def figure(title: str, drawn: Child, caption: Child, *, source: str = "") -> Html:
    """A picture with a title above it, and below it what a healthy one looks like and whose figure it is."""
    origin = tag("cite", source) if source else None
    inside = tag("h3", title), drawn, tag("figcaption", caption, " " if origin else None, origin)
    return tag("figure", inside, class_="panel")


def grid(figures: Sequence[Html]) -> Html:
    return tag("div", figures, class_="grid")


def left_out(title: str, why: str) -> Html:
    """What the page would have shown, and why it does not."""
    return tag("p", tag("strong", title), f" is left out: {why}", class_="left-out")


def attempted(title: str, make: Callable[[], Child]) -> Child:
    """A part of the page, or the reason why it is not there: the rest is worth having whatever becomes of one part."""
    try:
        return make()
    except Exception as error:  # a report must not fail a run that has ended well
        return left_out(title, reason(error))


def thumbnail(sheet: Sheet, number: int, sheet_number: int, words: str, kind: str = "") -> Html:
    """One picture of a sheet, with words for who cannot see it."""
    column, row = sheet.place(number)
    classes = f"thumb sheet{sheet_number} {kind}".strip()
    return tag("span", class_=classes, style=f"--x:{column};--y:{row}", role="img", aria_label=words, title=words)


def sheet_style(sheet: Sheet, number: int) -> str:
    """The rule that gives thumbnails their picture."""
    sharp = "image-rendering:pixelated;" if sheet.side < 48 else ""
    return f".sheet{number}{{--n:{sheet.columns};{sharp}background-image:url({sheet.uri})}}"


def scrolled(name: str, table: Html) -> Html:
    """A table that moves within its own bounds where it is wider than the page."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def copied(text: str, name: str) -> Html:
    """Lines to be taken from the page."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy {name}")
    return tag("div", tag("pre", tag("code", text)), button, class_="copied")
