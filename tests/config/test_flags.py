"""Flags: what they may look like."""

from __future__ import annotations

import pytest

from manyview.config.flags import read_flags


def test_flags_come_as_two_words_or_one_or_alone_with_dashes_or_underscores() -> None:
    found = read_flags(["--epochs", "3", "--loss.name=dcl", "--quiet", "--micro-batch", "8", "--max_steps=2"])
    assert found == {"epochs": "3", "loss.name": "dcl", "quiet": True, "micro_batch": "8", "max_steps": "2"}


def test_a_negative_number_is_a_value_and_no_flag() -> None:
    assert read_flags(["--seed", "-3"]) == {"seed": "-3"}


def test_an_equals_sign_within_a_value_stays() -> None:
    assert read_flags(["--out=a=b"]) == {"out": "a=b"}


@pytest.mark.parametrize("words", [["photos"], ["-x", "3"], ["--"], ["--epochs", "3", "4"]])
def test_a_word_that_belongs_to_no_flag_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="expected --key value, got"):
        read_flags(words)
