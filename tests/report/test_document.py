from __future__ import annotations

from manyview.report.document import document, is_page, links
from manyview.report.html import tag


def test_a_page_is_known_by_its_beginning_and_others_are_not() -> None:
    page = document("a < b", tag("body", "text"), [".x{}"])
    assert is_page(page.encode())
    assert not is_page(b"<!doctype html><html><head></head>")
    assert "<title>a &lt; b</title>" in page
    assert ".x{}" in page


def test_links_lead_to_sections() -> None:
    assert links([("map", "Map")]) == '<nav aria-label="Sections"><a href="#map">Map</a></nav>'
