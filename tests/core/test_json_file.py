from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from manyview.core import json_file
from manyview.core.json_file import as_type, parse_json, read_json


@dataclass
class Inner:
    score: float
    name: str = "none"


@dataclass
class Outer:
    inner: list[list[Inner]]
    seeds: tuple[int, ...]
    tables: dict[str, dict[str, float]] = field(default_factory=dict)
    anything: dict[str, Any] | None = None


GOOD: dict[str, Any] = {
    "inner": [[{"score": 1, "name": "a"}], [{"score": 0.5}]],
    "seeds": [0, 1],
    "anything": {"a": [None]},
    "more": 3,
}


def test_a_file_is_read_as_the_type_that_it_should_be(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOOD))
    found = read_json(tmp_path / "a.json", Outer, remedy="")
    assert found == Outer([[Inner(1, "a")], [Inner(0.5)]], (0, 1), {}, {"a": [None]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[", "Expecting value"),
        ("[" * 100_000, "it nests too deep"),
        ("{}", "inner is missing"),
        ("[]", "it: expected a table, got a list"),
        ("null", "it: expected a table, got None"),
        (json.dumps({**GOOD, "seeds": "01"}), "seeds: expected a list, got '01'"),
        (json.dumps({**GOOD, "seeds": [True]}), "seeds[0]: expected a whole number, got True"),
        (json.dumps({**GOOD, "seeds": [10**30]}), "seeds[0]: expected a whole number, got 1e+30"),
        (json.dumps({**GOOD, "inner": [[{"score": float("nan")}]]}), "score: expected a finite number, got nan"),
        (json.dumps({**GOOD, "inner": [[{"score": 10**400}]]}), "score: expected a finite number, got inf"),
        (json.dumps({**GOOD, "tables": {"a": {"b": "c"}}}), "tables['a']['b']: expected a finite number, got 'c'"),
        (json.dumps({**GOOD, "tables": {"a\n": []}}), "tables['a\\n']: expected a table, got a list"),
        (json.dumps({**GOOD, "anything": 5}), "anything: expected a table, got 5"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line_that_names_the_place(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match="is damaged") as raised:
        read_json(tmp_path / "a.json", Outer, remedy="bring it back")
    assert f"a.json is damaged ({why}" in str(raised.value)
    assert str(raised.value).endswith("; bring it back")
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text_a_folder_and_a_file_too_large_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(json_file, "MAX_BYTES", 1 << 20)
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(3 << 20)
    for name, why in (
        ("a.json", "can't decode"),
        (".", "it is no file"),
        ("pipe", "it is no file"),
        ("large.json", "it has 3 MB"),
    ):
        with pytest.raises(ValueError, match=f"is damaged.*{why}"):
            read_json(tmp_path / name, Any, remedy="")


def test_long_numbers_are_floats() -> None:
    assert parse_json("[1234567890123456789, 1e2]") == [1234567890123456789, 100.0]
    assert parse_json("-" + "9" * 6000) == float("-inf")
    assert as_type(3, float) == 3
    for number in (1e200, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected a finite number"):
            as_type(number, float)
