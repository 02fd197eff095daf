from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyview.report.html import (
    Html,
    attempted,
    copyable,
    data,
    figure,
    join,
    left_out,
    section,
    signed_points,
    table,
    tag,
    verbatim,
)

EVIL, SAFE = '<b>"x', "&lt;b&gt;&quot;x"


class Reader(HTMLParser):
    """What a browser would make of it: elements, and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
def test_any_text_comes_out_as_text_inside_an_element_and_in_an_attribute(text: str) -> None:
    read = Reader(tag("p", text, title=text))
    assert read.tags == ["p"]
    assert read.text == text
    assert read.attributes == {"title": text}


def test_markup_is_not_escaped_twice_and_texts_beside_it_are_escaped() -> None:
    assert tag("p", tag("b", "<"), " & ", ["x", None, tag("i", 3)]) == "<p><b>&lt;</b> &amp; x<i>3</i></p>"
    assert join(("a<", Html("<br>"))) == "a&lt;<br>"


def test_attributes_that_are_none_or_false_are_left_out_and_zero_stays() -> None:
    assert tag("p", class_="a", data_i=0, hidden=True, title=None, open=False) == '<p class="a" data-i="0" hidden></p>'


def test_elements_without_an_end_have_none() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_what_no_page_may_hold_is_replaced() -> None:
    assert tag("p", "a\0b\x1b\udc80c\n") == "<p>a\ufffdb\ufffd\ufffdc\n</p>"


@pytest.mark.parametrize("text", ["</script><script>alert(1)</script>", "<!--", "]]>", "\u2028", "\udc80"])
def test_values_for_the_script_cannot_end_it(text: str) -> None:
    made = data("values", {"name": text})
    inside = made.partition(">")[2].rpartition("</script>")[0]
    assert "<" not in inside
    assert json.loads(inside) == {"name": text}


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        data("values", [float("nan")])


def test_a_script_with_its_own_end_in_it_is_refused() -> None:
    assert verbatim("script", "a < b") == "<script>a < b</script>"
    with pytest.raises(ValueError, match="its own end tag"):
        verbatim("style", "a</STYLE>")


def test_texts_of_every_part_are_escaped() -> None:
    parts = [
        section("map", EVIL, EVIL), figure(EVIL, EVIL, EVIL, source=EVIL), left_out(EVIL, EVIL), copyable(EVIL, EVIL),
        table(EVIL, EVIL, [EVIL]),
    ]  # fmt: skip
    for part in parts:
        assert EVIL not in part
        assert SAFE in part


def test_a_part_that_fails_is_named_with_the_reason() -> None:
    def fails() -> str:
        raise ValueError("two\n  lines <b>")

    assert attempted("The map", fails) == (
        '<p class="left-out"><strong>The map</strong> is left out: two lines &lt;b&gt;</p>'
    )
    assert attempted("The map", lambda: "drawn") == "drawn"


def test_differences_have_their_sign() -> None:
    shown = (signed_points(0.3834, 0.1488), signed_points(0.05, 0.1), signed_points(0.2, 0.2))
    assert shown == ("+23.4", "\u22125.0", "+0.0")  # 38.3 - 14.9
