from __future__ import annotations

import pytest

from manyview.core.text import digest, duration, one_line, printable, reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 漢.png", "plain é 漢.png"),
        ("a\nb\x1b[31m", r"a\nb\x1b[31m"),
        ("caf\udce9", r"caf\xe9"),  # a byte that is no UTF-8, as os.fsdecode gives it
        ("half \ud800", r"half \ud800"),
    ],
)
def test_names_print_safely(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_several_lines_become_one_and_spaces_within_a_line_stay() -> None:
    assert one_line("  step 1/2  loss 3\n\n    of \x1b[2J three\n") == r"step 1/2  loss 3 of \x1b[2J three"


def test_an_error_without_a_message_is_named_by_its_type() -> None:
    assert reason(ValueError("data: has one class;\n  give two")) == "data: has one class; give two"
    assert reason(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"), (12.3, "12 s"), (59.6, "1 min"), (200, "3 min 20 s"), (240, "4 min"), (1830, "30 min"),
        (7500, "2 h 5 min"), (47.9 * 3600, "47 h 54 min"), (3.5 * 86400, "3.5 days"),
    ],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_it_stands_for_a_value_whatever_the_order_of_its_keys() -> None:
    assert digest({"a": 1, "b": [2, "ü"]}) == digest({"b": [2, "ü"], "a": 1}) != digest({"a": 1, "b": [3, "ü"]})
    assert len(digest(None)) == 32
