"""The HTML document around a page: its head with style and content rules, and how one of ours is recognised."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from manyview import __version__
from manyview.report.html import Child, Html, tag, verbatim

WRITER = "manyview"  # by which a page of ours is known, that may be written over


def document(name: str, body: Html, styles: Sequence[str] = ()) -> str:
    """Writes a page with this title; `styles` are added to the page's own."""
    head = _head(name, "\n".join([_file("style.css"), *styles]), script())
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def script() -> str:
    """Writes the only script that may run in a page."""
    return _file("script.js")


def links(names: Sequence[tuple[str, str]]) -> Html:
    """Writes links to a page's sections, by their names and titles."""
    return tag("nav", [tag("a", text, href=f"#{name}") for name, text in names], aria_label="Sections")


def is_page(beginning: bytes) -> bool:
    """Tells whether a file that begins so is a page of ours."""
    return str(tag("meta", name="generator", content=WRITER)).removesuffix('">').encode() in beginning


def _head(name: Child, style: str, text: str) -> Html:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    rules = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{rules}; base-uri 'none'; form-action 'none'"),
        tag("meta", name="generator", content=f"{WRITER} {__version__}"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", name),
        verbatim("style", style),
    )


def _file(name: str) -> str:
    return (files("manyview.report") / name).read_text(encoding="utf-8")
