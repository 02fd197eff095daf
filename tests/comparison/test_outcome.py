"""Scores over seeds, differences seed by seed."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from manyview.comparison.outcome import Outcome, Point, Row, read, told


def row(method: str, scores: list[float], *, seeds: tuple[int, ...] = (0, 1, 2)) -> Row:
    curves = [[Point(0, 0.0, 0.1), Point(2, 9.0, score)] for score in scores]
    return Row(method, seeds, 32, 2, 40, curves, {"kNN": scores}, [9.0] * len(scores), 3 << 20)


FIRST, SECOND = row("simclr", [0.40, 0.50, 0.60]), row("dcl", [0.42, 0.53, 0.61])


def test_differences_are_taken_seed_by_seed() -> None:
    found = Outcome(Path(), "scenes", [FIRST, SECOND], 400).differences(SECOND)
    assert found == pytest.approx([0.02, 0.03, 0.01])
    assert statistics.stdev(found) < statistics.stdev(SECOND.scores["kNN"]) / 5  # what seeds share has fallen out


def test_seeds_that_only_one_method_has_do_not_count() -> None:
    late = row("jcl", [0.55, 0.64], seeds=(1, 2))
    assert Outcome(Path(), "scenes", [FIRST, late], 400).differences(late) == pytest.approx([0.05, 0.04])


def test_the_table_has_mean_deviation_and_difference() -> None:
    lines = Outcome(Path(), "scenes", [FIRST, SECOND], 400).table().splitlines()
    assert lines[2] == "| simclr | 32 x 2 | 40 | 50.0 ± 10.0 |  | 9 | 3 MB |"
    assert lines[3] == "| dcl | 32 x 2 | 40 | 52.0 ± 9.5 | +2.0 ± 1.0 | 9 | 3 MB |"


def test_one_seed_has_no_deviation() -> None:
    assert told([0.123]) == "12.3"


def test_only_scores_that_all_have_are_shown() -> None:
    more = row("jcl", [0.1, 0.1, 0.1])
    more.scores["linear-fast"] = [0.2, 0.2, 0.2]
    assert Outcome(Path(), "scenes", [more, FIRST], 400).scores == ["kNN"]


def test_all_of_it_goes_into_json() -> None:
    plain = json.loads(json.dumps(Outcome(Path(), "scenes", [FIRST, SECOND], 400).plain()))
    assert plain["against"] == "simclr"
    assert plain["rows"][1]["differences"]["kNN"] == pytest.approx([0.02, 0.03, 0.01])
    assert plain["rows"][0]["images_seen"] == 1280


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(
        json.dumps(Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, ("jcl, seed 1",)).plain())
    )
    assert read(tmp_path) == Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, ("jcl, seed 1",))


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"data": "scenes"}')
    with pytest.raises(ValueError, match=r"comparison.json: is not what `manyview compare` writes"):
        read(tmp_path)


def test_which_images_are_asked_about_is_a_doubt_of_its_own() -> None:
    assert Outcome(Path(), "scenes", [FIRST, SECOND], 400).doubt == pytest.approx(0.025)  # sqrt(.5 x .5 / 400)


def test_every_method_has_a_run_to_show() -> None:
    found = Outcome(Path("there"), "scenes", [FIRST, row("jcl", [0.1], seeds=(2,))], 400)
    assert [run.folder for run in found.runs()] == [Path("there/simclr-0"), Path("there/jcl-2")]
