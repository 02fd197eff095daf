"""results.json: whole at any time, one entry for what gives the same scores, and damage said in one line."""

from __future__ import annotations

import json
import multiprocessing
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.evaluate.results import FILE, LOCK, Result, find, put, read

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


ODD = {
    "cut short": "[{",
    "an empty entry": "[{}]",
    "somebody else's table": "{}",
    "somebody else's": '{"a": 1}',
    "a number": "3",
    "null": "null",
    "a text": '["knn"]',
    "nested deeply": "[" * 100_000,
    "scores that are a list": json.dumps([{**asdict(ONE), "scores": [0.5]}]),
    "scores that are texts": json.dumps([{**asdict(ONE), "scores": {"top1": "0.5"}}]),
    "no scores": json.dumps([{**asdict(ONE), "scores": {}}]),
    "NaN": json.dumps([{**asdict(ONE), "scores": {"top1": float("nan")}}]),
    "an infinite setting": json.dumps([{**asdict(ONE), "settings": {"k": float("inf")}}]),
    "untrained as a number": json.dumps([{**asdict(ONE), "untrained": 0.5}]),
    "a protocol that is none": json.dumps([{**asdict(ONE), "protocol": ["knn"]}]),
    "when as a number": json.dumps([{**asdict(ONE), "when": 3}]),
    "a seed in words": json.dumps([{**asdict(ONE), "seed": "zero"}]),
    "data as a text": json.dumps([{**asdict(ONE), "data": "scenes"}]),
    "seconds as a text": json.dumps([{**asdict(ONE), "seconds": "1.5"}]),
    "a subject that is none": json.dumps([{**asdict(ONE), "model": None, "subject": 3}]),
}


@pytest.mark.parametrize("kind", ODD)
def test_a_damaged_file_is_one_line_and_is_not_overwritten(kind: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(ODD[kind])
    with pytest.raises(UserError, match=r"results.json is damaged .*; remove it, or give another --out") as refused:
        put(tmp_path, ONE)
    assert "\n" not in str(refused.value)
    assert (tmp_path / FILE).read_text() == ODD[kind]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(UserError, match=r"damaged .it is no file.; remove it"):
        put(tmp_path, ONE)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).mkdir()
    with pytest.raises(UserError, match="it is no file"):
        read(tmp_path / "other")


def write_scores(folder: Path, writer: int) -> None:
    for score in range(10):
        put(folder, replace(ONE, seed=10 * writer + score))


def test_several_writers_keep_every_score(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write_scores, args=(tmp_path, number)) for number in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert sorted(each.seed for each in read(tmp_path)) == list(range(40))


def test_names_that_are_no_utf_8_are_written_and_read_again(tmp_path: Path) -> None:
    named = replace(ONE, data={"name": "caf\udce9 ネコ"}, model={"name": os.fsdecode(b"\xff")})
    put(tmp_path, named)
    assert read(tmp_path) == [named]
    assert "ネコ" in (tmp_path / FILE).read_text(encoding="utf-8")


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
    assert sorted(file.name for file in tmp_path.iterdir()) == [FILE, LOCK]
