from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from manyview.report.run_record import RunRecord, read_records
from manyview.training.run import Run


def copy(run: Run, folder: Path, **settings: object) -> Run:
    """The run's settings, some of them changed, with measurements of one's own."""
    folder.mkdir(parents=True)
    text = (run.folder / "config.yaml").read_text()
    for key, value in settings.items():
        lines = [f"{key}: {value}" if line.startswith(f"{key}:") else line for line in text.splitlines()]
        text = "\n".join(lines)
    (folder / "config.yaml").write_text(text)
    return Run(folder)


def measured(run: Run, *lines: Mapping[str, object] | str) -> RunRecord:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (run.folder / "metrics.jsonl").write_text(text)
    return read_records([run])[0]


def test_curves_are_by_epoch_and_by_minute(run: Run, tmp_path: Path) -> None:
    found = measured(
        copy(run, tmp_path / "a"),
        {"step": 0, "epoch": 0, "seconds": 0.0, "knn": 0.2},
        {"step": 5, "epoch": 1, "seconds": 30.0, "loss": 3.0},
        {"step": 10, "epoch": 1, "seconds": 60.0, "knn": 0.4},
        {"step": 15, "epoch": 2, "seconds": 90.0, "loss": None, "not_finite": {"loss": "nan"}},
    )
    assert found.curve("loss") == [(0.5, 3.0)]
    assert found.knn == [(0.0, 0.2), (1.0, 0.4)]
    assert found.curve("knn", over="minutes") == [(0.0, 0.2), (1.0, 0.4)]
    assert (found.untrained, found.steps, found.seconds, found.epochs) == (0.2, 15, 90.0, 1.5)


def test_half_a_line_and_nonsense_are_passed_over(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), {"step": 1, "loss": 2.0}, "[1]", "nonsense", '{"step": 2, "lo')
    assert [line["step"] for line in found.metrics] == [1]


def test_without_measurements_there_is_no_verdict(run: Run, tmp_path: Path) -> None:
    found = read_records([copy(run, tmp_path / "a")])[0]
    assert found.verdict() is None
    assert found.knn == []
    assert not found.finished


def test_the_verdict_is_the_one_that_training_gave(run: Run) -> None:
    found = read_records([run])[0]
    verdict = found.verdict()
    assert verdict is not None
    assert verdict.word == found.metrics[-1]["health"]
    assert verdict.word in verdict.text


def test_a_verdict_for_which_the_page_lacks_the_numbers_is_told_by_its_word(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), {**run.metrics[-1], "health": "broken data"})
    verdict = found.verdict()
    assert verdict is not None
    assert (verdict.level, verdict.word) == ("warning", "broken data")


def test_runs_are_named_by_method_and_what_sets_them_apart(run: Run, other: Run, tmp_path: Path) -> None:
    larger = copy(run, tmp_path / "large", batch_size=16)
    found = read_records([run, other, larger])
    assert [each.name for each in found] == ["dcl batch size 8", "simclr", "dcl batch size 16"]
    assert [each.colour for each in found] == [0, 1, 2]
    assert all(each.first for each in found)


def test_runs_that_differ_by_their_seed_share_a_colour(run: Run, other: Run, tmp_path: Path) -> None:
    again = copy(run, tmp_path / "again", seed=1)
    found = read_records([run, other, again])
    assert [(each.name, each.colour, each.first) for each in found] == [
        ("dcl seed 0", 0, True), ("dcl seed 1", 0, False), ("simclr", 1, True),
    ]  # fmt: skip


def test_the_same_folder_twice_has_two_names(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.folder, tmp_path / "copy")
    names = [each.name for each in read_records([run, Run(tmp_path / "copy")])]
    assert len(set(names)) == 2, names


def test_settings_of_another_version_are_one_line(run: Run, tmp_path: Path) -> None:
    odd = copy(run, tmp_path / "odd")
    (odd.folder / "config.yaml").write_text("colour: blue")
    with pytest.raises(ValueError, match="colour: there is no such setting"):
        read_records([odd])


def test_recalls_have_what_they_were_before_training_and_what_chance_gives(run: Run, tmp_path: Path) -> None:
    names = {f"recall@{k}/rgb to ir": 0.1 * k for k in (1, 5, 10)}
    found = measured(
        copy(run, tmp_path / "a"),
        {"step": 0, "epoch": 0, "recall@1/rgb to ir": 0.02, "pairs/rgb to ir": 50, "recall@1/odd": 0.5},
        {"step": 9, "epoch": 1, **names, "recall@1": 0.1, "pairs/rgb to ir": 50},
    )
    assert found.pairs == [("rgb", "ir")]
    first, fifth, tenth = found.recalls("rgb", "ir")
    assert first == (1, 0.1, 0.02, 0.02)
    assert fifth == (5, 0.5, None, 0.1)
    assert tenth.last == 1.0
    assert found.recalls("ir", "rgb") == []


def test_a_run_with_an_encoder_a_view_is_finished_when_they_are_written(many: Run, tmp_path: Path) -> None:
    assert read_records([many])[0].finished
    shutil.copytree(many.folder, tmp_path / "a")
    for file in (tmp_path / "a").glob("encoder*"):
        file.unlink()
    assert not read_records([Run(tmp_path / "a")])[0].finished


def test_metrics_of_views_and_terms_are_no_measures_of_health(many: Run) -> None:
    found = read_records([many])[0]
    verdict = found.verdict()
    assert verdict is not None
    assert verdict.word == found.metrics[-1]["health"]
    assert found.names("loss/")[:2] == ["rgb to ab", "ab to rgb"]
    assert found.names("knn/") == ["rgb", "ab", "depth"]
