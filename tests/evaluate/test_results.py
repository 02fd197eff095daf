"""results.json: whole at any time, one entry for what gives the same scores, and damage said in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from manyview.evaluate.results import FILE, Result, find, put, read

ONE = Result(
    "knn", {"k": 20}, {"top1": 0.5, "top5": 0.9}, {"name": "scenes", "train": 10}, 0, {"name": "a", "checksum": "12"},
    "0.1.0", "2030-01-01T00:00:00+00:00", 1.5, {"top1": 0.1},
)  # fmt: skip


def test_what_was_put_is_read_again(tmp_path: Path) -> None:
    other = replace(ONE, protocol="linear-fast")
    put(tmp_path / "new", ONE)
    put(tmp_path / "new", other)
    assert read(tmp_path / "new") == [ONE, other]
    assert read(tmp_path) == []


def test_the_same_again_takes_the_place_of_the_older(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    put(tmp_path, replace(ONE, scores={"top1": 0.6}, when="2031-01-01T00:00:00+00:00"))
    assert [each.scores for each in read(tmp_path)] == [{"top1": 0.6}]


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "linear"},
        {"settings": {"k": 200}},
        {"data": {"name": "scenes", "train": 11}},
        {"seed": 1},
        {"model": {"name": "a", "checksum": "34"}},
        {"version": "0.2.0"},
    ],
)
def test_another_setting_data_seed_subject_or_version_is_another_result(
    change: dict[str, object], tmp_path: Path
) -> None:
    put(tmp_path, ONE)
    assert find(tmp_path, replace(ONE, **change)) is None  # type: ignore[arg-type]


def test_where_things_lie_does_not_matter(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    moved = replace(ONE, model={"name": "elsewhere/a", "checksum": "12"}, data={"name": "mnt/scenes", "train": 10})
    assert find(tmp_path, moved) == ONE


def test_the_score_to_quote_is_the_first() -> None:
    assert ONE.score == 0.5


@pytest.mark.parametrize("content", ["[{", "[{}]", '{"a": 1}', "3"])
def test_a_damaged_file_is_one_line_and_is_not_overwritten(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ValueError, match=r"results.json is damaged .*; remove it, or give another --out"):
        put(tmp_path, ONE)
    assert (tmp_path / FILE).read_text() == content


def test_entries_of_a_later_version_may_know_more(tmp_path: Path) -> None:
    put(tmp_path, ONE)
    entries = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps([{**entries[0], "kilowatts": 3}]))
    assert read(tmp_path) == [ONE]


def test_no_result_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, ONE)
    with pytest.raises(ValueError, match="JSON"):
        put(tmp_path, replace(ONE, seed=1, scores={"top1": float("nan")}))
    assert read(tmp_path) == [ONE]
    assert [file.name for file in tmp_path.iterdir()] == [FILE]
