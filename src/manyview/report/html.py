"""Markup that is always escaped: whatever is not `Html` is text, and is escaped here and nowhere else."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from manyview.core.errors import UserError

VOID = ("meta", "br", "img", "wbr")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")  # what no page may hold; names of files may


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


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{_escaped(value)}"'


def _escaped(value: object) -> Html:
    return Html(html.escape(CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value))))
