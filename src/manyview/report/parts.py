"""What the sections of a page are made of: sections, figures, thumbnails, tables, and a word where one is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from manyview.core.text import reason
from manyview.report.html import Child, Html, tag
from manyview.report.images import ThumbnailSheet

DASH = "\N{EN DASH}"  # where there is no value


def section(name: str, title: str, lead: Child, *inside: Child) -> Html:
    """Makes a chapter of the page; the name is where links go."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, inside, id=name)


def figure(title: str, drawn: Child, caption: Child, *, source: str = "") -> Html:
    """Makes a figure with a title above, and below what a healthy one looks like and whose figure it is."""
    origin = tag("cite", source) if source else None
    inside = tag("h3", title), drawn, tag("figcaption", caption, " " if origin else None, origin)
    return tag("figure", inside, class_="panel")


def grid(figures: Sequence[Html]) -> Html:
    return tag("div", figures, class_="grid")


def left_out(title: str, why: str) -> Html:
    """Says what the page would have shown, and why it does not."""
    return tag("p", tag("strong", title), f" is left out: {why}", class_="left-out")


def attempted(title: str, make: Callable[[], Child]) -> Child:
    """Makes a part of the page, or says why it is missing: the rest is worth having whatever becomes of one part."""
    try:
        return make()
    except Exception as error:  # a report must not fail a run that has ended well
        return left_out(title, reason(error))


def thumbnail(sheet: ThumbnailSheet, number: int, sheet_number: int, caption: str, kind: str = "") -> Html:
    """Shows one picture of a sheet, with a caption for who cannot see it."""
    column, row = sheet.place(number)
    classes = f"thumb sheet{sheet_number} {kind}".strip()
    return tag("span", class_=classes, style=f"--x:{column};--y:{row}", role="img", aria_label=caption, title=caption)


def sheet_style(sheet: ThumbnailSheet, number: int) -> str:
    """Gives the CSS rule that gives thumbnails their picture."""
    sharp = "image-rendering:pixelated;" if sheet.side < 48 else ""
    return f".sheet{number}{{--n:{sheet.columns};{sharp}background-image:url({sheet.uri})}}"


def scrollable(name: str, table: Html) -> Html:
    """Makes a table scroll within its own bounds where it is wider than the page."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=name)


def copyable(text: str, name: str) -> Html:
    """Shows lines with a button that copies them."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy {name}")
    return tag("div", tag("pre", tag("code", text)), button, class_="copied")


def signed_points(difference: float) -> str:
    """Writes a difference of shares in points, with its sign: +12.3."""
    points = 100 * difference
    return f"{'+' if points >= 0 else chr(0x2212)}{abs(points):.1f}"
