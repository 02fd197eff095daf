"""The parser of commands: words, flags and settings as the arguments of a function."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from manyview.cli.arguments import call, parsed, usage
from manyview.core.bounds import AtLeast
from manyview.core.errors import UserError
from tests.config.small import anything


def paint(
    what: Annotated[str, "what to paint"],
    colours: tuple[str, ...] = (),
    *,
    size: Annotated[int, AtLeast(1), "in pixels"] = 8,
    style: Literal["flat", "round"] = "flat",
    to: str | None = None,
    dry: bool = False,
) -> int:
    """Paints something."""
    return size


def learn(*, data: str, fast: bool = False, **settings: Any) -> int:
    """Learns something."""
    return 0


def words(text: str) -> dict[str, Any]:
    return parsed(paint, text.split())


def test_words_go_to_their_places_and_flags_have_their_types() -> None:
    expected = {"what": "a", "colours": ("b", "c"), "size": 3, "style": "round", "to": "1", "dry": True}
    assert words("a b c --size 3 --style=round --to 1 --dry") == expected
    assert words("--dry a --size 3 b c --style=round --to 1") == expected  # a switch takes no word
    assert words("a") == {"what": "a", "colours": (), "size": 8, "style": "flat", "to": None, "dry": False}
    assert words("a --dry false")["dry"] is False


def test_flags_of_no_parameter_are_settings_where_a_command_takes_them() -> None:
    found = parsed(learn, ["--data", "x", "--data.count", "5", "--lr", "0.1", "--method", "jcl", "--fast"])
    assert found == {"data": "x", "fast": True, "data.count": "5", "lr": "0.1", "method.name": "jcl"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "what: is needed; give WHAT"),
        ("a --size", "size: expected a whole number, got none; write --size VALUE"),
        ("a --size=", "size: expected a value, got none; write --size VALUE"),
        ("a --size big", "size: expected a whole number, got 'big'"),
        ("a --size 0", "size: expected at least 1, got 0"),
        ("a --style square", "style: expected one of flat, round, got 'square'"),
        ("a --size 1 --size 2", "size: is given twice; leave one out"),
        ("a --sise 1", "--sise: there is no such flag; did you mean --size?"),
        ("a --xyz 1", "--xyz: there is no such flag; --help shows all"),
        ("a -x", "expected --key value, got '-x'"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        words(text)
    assert str(refused.value) == said


def test_a_word_where_there_is_no_place_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected --key value, got .photos.; for data write --data photos"):
        parsed(learn, ["photos"])
    with pytest.raises(UserError, match=r"expected --key value, got '64'$"):
        parsed(learn, ["--data", "x", "--fast", "64"])


def test_help_is_read_off_the_signature(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage(paint).splitlines() == [
        "usage: manyview paint WHAT [COLOURS] [--FLAG VALUE ...]",
        "",
        "Paints something.",
        "",
        "  WHAT                        what to paint",
        "  COLOURS",
        "  --size   8                  in pixels",
        "  --style  flat (flat|round)",
        "  --to     -",
        "  --dry    false",
    ]
    assert "--data VALUE" in usage(learn)
    for flag in ("-h", "--help"):
        assert call(paint, ["a", flag]) == 0
        assert capsys.readouterr().out == f"{usage(paint)}\n"


def test_a_command_is_called_with_what_was_typed() -> None:
    assert call(paint, ["a", "--size", "5"]) == 5


def test_flags_come_as_two_words_or_one_or_alone_with_dashes_or_underscores() -> None:
    found = parsed(anything, ["--epochs", "3", "--loss.name=dcl", "--quiet", "--micro-batch", "8", "--max_steps=2"])
    assert found == {"epochs": "3", "loss.name": "dcl", "quiet": True, "micro_batch": "8", "max_steps": "2"}


def test_a_negative_number_is_a_value_and_no_flag() -> None:
    assert parsed(anything, ["--seed", "-3"]) == {"seed": "-3"}


def test_an_equals_sign_within_a_value_stays() -> None:
    assert parsed(anything, ["--out=a=b"]) == {"out": "a=b"}


@pytest.mark.parametrize("words", [["photos"], ["-x", "3"], ["--"], ["--epochs", "3", "4"]])
def test_a_word_that_belongs_to_no_flag_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="expected --key value, got"):
        parsed(anything, words)
