"""HTML that is always escaped, and the parts that pages are made of: sections, figures, tables.

Whatever is not `Html` is text, and is escaped here and nowhere else.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.features.gain import gain_in_points

VOID = ("meta", "br", "img", "wbr")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # what no page may hold; names of files may
DASH = "\N{EN DASH}"  # where there is no value


class Html(str):
    """A piece of a page. Only `tag`, `join`, `data` and `verbatim` make one."""


Child = str | float | None | Iterable["Child"]


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Makes an element. Texts are escaped; None and False are left out; `class_` is class, `aria_label` is aria-label.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Joins pieces and texts one after the other."""
    if isinstance(children, Html):
        return children
    if children is None or isinstance(children, str | int | float):
        return _escaped("" if children is None else children)
    return Html("".join(join(child) for child in children))


def data(name: str, value: Any) -> Html:
    """Embeds values for the page's script, which finds them by name."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{_escaped(name)}">{written}</script>')


def verbatim(name: str, text: str) -> Html:
    """Embeds our own style or script, which is read as it stands."""
    if f"</{name}" in text.lower():
        raise UserError(None, f"{name}: holds its own end tag")
    return Html(f"<{name}>{text}</{name}>")


def section(name: str, title: str, lead: Child, *inside: Child) -> Html:
    """Makes a section of the page; links lead to its name."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, inside, id=name)


def figure(title: str, drawn: Child, caption: Child, *, source: str = "") -> Html:
    """Makes a figure with a title above it, and below it a caption on what is healthy and the figure's source."""
    origin = [" ", tag("cite", source)] if source else None
    return tag("figure", tag("h3", title), drawn, tag("figcaption", caption, origin), class_="panel")


def left_out(title: str, why: str) -> Html:
    """Writes what the page leaves out, and why."""
    return tag("p", tag("strong", title), f" is left out: {why}", class_="left-out")


def attempted(title: str, make: Callable[[], Child]) -> Child:
    """Makes a part of the page, or explains why it is missing, so that one failure does not cost the whole page."""
    try:
        return make()
    except Exception as error:  # a report must not fail a run that has ended well
        return left_out(title, reason(error))


def table(name: str, columns: Child, rows: Iterable[Child]) -> Html:
    """Makes a table from a row of titles and others; a wide one scrolls within its own bounds."""
    body = tag("tbody", (tag("tr", row) for row in rows))
    whole = tag("table", tag("thead", tag("tr", columns)), body)
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=name)


def copyable(text: str, name: str) -> Html:
    """Shows lines with a button that copies them."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy {name}")
    return tag("div", tag("pre", tag("code", text)), button, class_="copied")


def signed_points(after: float, before: float, error: float | None = None) -> str:
    """Writes the difference of two shares in points as `gain_in_points` does, with a true minus sign."""
    return gain_in_points(after, before, error).replace("-", "\N{MINUS SIGN}")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(value: object) -> Html:
    return Html(html.escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))))
