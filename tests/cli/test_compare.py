"""Flags of `manyview compare` as what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manyview.cli import compare as command
from manyview.cli import main as cli
from manyview.comparison.outcome import MethodOutcome, Outcome, Point

NEEDED = ["--data", "scenes", "--methods", "simclr,dcl"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `compare` was called with."""
    found: dict[str, Any] = {}
    row = MethodOutcome("simclr", (0,), 32, 2, 40, 1280, [[Point(0, 0.0, 0.1)]], {"kNN": [0.5]}, [9.0], None)

    def compare(data: str, methods: tuple[str, ...], **given: Any) -> Outcome:
        found.update(given, data=data, methods=methods)
        return Outcome(Path(), data, [row], 400)

    monkeypatch.setattr(command, "compared", compare)
    return found


@pytest.mark.parametrize("flag", ["data", "methods", "minutes", "seeds", "recipe", "jobs", "protocols", "out"])
@pytest.mark.parametrize("text", ["--{}", "--{}=", "--{}=,"])
def test_a_flag_without_its_value_is_refused_in_one_line(
    asked: dict[str, Any], capsys: pytest.CaptureFixture[str], flag: str, text: str
) -> None:
    at = NEEDED.index(f"--{flag}") if f"--{flag}" in NEEDED else len(NEEDED)
    assert cli.main(["compare", *NEEDED[:at], *NEEDED[at + 2 :], text.format(flag)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"manyview compare: {flag}: expected ")
    assert said.endswith(f", got none; write --{flag} VALUE\n")
    assert not asked


@pytest.mark.parametrize("flag", ["data", "methods"])
def test_what_is_needed_is_asked_for(asked: dict[str, Any], capsys: pytest.CaptureFixture[str], flag: str) -> None:
    at = NEEDED.index(f"--{flag}")
    assert cli.main(["compare", *NEEDED[:at], *NEEDED[at + 2 :]]) == 2
    assert capsys.readouterr().err == f"manyview compare: {flag}: is needed; give --{flag}\n"
    assert not asked


def test_seeds_that_are_no_numbers_are_refused(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *NEEDED, "--seeds", "x"]) == 2
    assert capsys.readouterr().err == "manyview compare: seeds: expected a list, each a whole number, got 'x'\n"
    assert not asked


def test_the_rule_of_the_batches_is_asked_for_by_name(asked: dict[str, Any]) -> None:
    assert cli.main(["compare", *NEEDED, "--batch-rule", "copies"]) == 0
    assert asked["batch_rule"] == "copies"


def test_values_are_read_as_what_they_mean(asked: dict[str, Any]) -> None:
    more = [
        "--seeds",
        "3,5",
        "--jobs",
        "2",
        "--minutes",
        "0.5",
        "--protocols",
        "knn, linear",
        "--out",
        "there",
        "--epochs",
        "4",
    ]
    assert cli.main(["compare", *NEEDED, *more]) == 0
    assert asked == {
        "data": "scenes", "methods": ("simclr", "dcl"), "seeds": (3, 5), "jobs": 2, "minutes": 0.5, "out": "there",
        "protocols": ("knn", "linear"), "batch_rule": "same", "recipe": None, "epochs": "4",
    }  # fmt: skip
