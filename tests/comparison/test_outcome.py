"""Scores over seeds, differences seed by seed."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from manyview.comparison.outcome import (
    Cost,
    MethodOutcome,
    Outcome,
    Point,
    collect,
    cost_of,
    mean_and_std,
    read,
    score_curve,
)
from manyview.comparison.plan import PlannedRun, SettingsByMethod
from manyview.config.recipes import to_yaml
from manyview.training.launch import configured
from manyview.training.run import CONFIG, METRICS, Run


def outcome_of(method: str, scores: list[float], *, seeds: tuple[int, ...] = (0, 1, 2)) -> MethodOutcome:
    curves = [[Point(0, 0.0, 0.1), Point(2, 9.0, score)] for score in scores]
    return MethodOutcome(method, seeds, 32, 2, 40, 1280, curves, {"kNN": scores}, [9.0] * len(scores), 3 << 20)


FIRST, SECOND = outcome_of("simclr", [0.40, 0.50, 0.60]), outcome_of("dcl", [0.42, 0.53, 0.61])


def test_differences_are_taken_seed_by_seed() -> None:
    found = Outcome(Path(), "scenes", [FIRST, SECOND], 400).differences(SECOND)
    assert found == pytest.approx([0.02, 0.03, 0.01])
    assert statistics.stdev(found) < statistics.stdev(SECOND.scores["kNN"]) / 5  # what seeds share has fallen out


def test_seeds_that_only_one_method_has_do_not_count() -> None:
    late = outcome_of("jcl", [0.55, 0.64], seeds=(1, 2))
    assert Outcome(Path(), "scenes", [FIRST, late], 400).differences(late) == pytest.approx([0.05, 0.04])


def test_the_table_has_mean_std_and_difference() -> None:
    lines = Outcome(Path(), "scenes", [FIRST, SECOND], 400).table().splitlines()
    assert lines[2] == "| simclr | 32 x 2 | 40 | 1,280 | 50.0 ± 10.0 |  | 9 |  | 3 MB |"
    assert lines[3] == "| dcl | 32 x 2 | 40 | 1,280 | 52.0 ± 9.5 | +2.0 ± 1.0 | 9 |  | 3 MB |"


def test_one_seed_has_no_std() -> None:
    assert mean_and_std([0.123]) == "12.3"


def test_only_scores_that_all_have_are_shown() -> None:
    more = outcome_of("jcl", [0.1, 0.1, 0.1])
    more.scores["linear-fast"] = [0.2, 0.2, 0.2]
    assert Outcome(Path(), "scenes", [more, FIRST], 400).scores == ["kNN"]


def test_all_of_it_goes_into_json() -> None:
    values = json.loads(json.dumps(Outcome(Path(), "scenes", [FIRST, SECOND], 400).to_json()))
    assert values["baseline"] == "simclr"
    assert values["methods"][1]["differences"]["kNN"] == pytest.approx([0.02, 0.03, 0.01])
    assert values["methods"][0]["images_seen"] == 1280


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text(
        json.dumps(Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, ("jcl, seed 1",)).to_json())
    )
    assert read(tmp_path) == Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, ("jcl, seed 1",))


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"data": "scenes"}')
    with pytest.raises(ValueError, match=r"comparison.json is damaged \(methods is missing\); the same `manyview comp"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("methods", [], "it has no methods or no queries"),
        ("queries", 0, "it has no methods or no queries"),
        ("queries", "400", "queries: expected a whole number, got '400'"),
        ("batch_rule", "views", "there is no batch rule 'views'"),
        ("failed", [1], r"failed\[0\]: expected a text, got 1"),
        ("differing_settings", {"lr": 1}, r"differing_settings\['lr'\]: expected a table, got 1"),
    ],
)
def test_values_of_odd_types_are_named(tmp_path: Path, name: str, value: object, why: str) -> None:
    found = Outcome(tmp_path, "scenes", [FIRST, SECOND], 400).to_json()
    (tmp_path / "comparison.json").write_text(json.dumps({**found, name: value}))
    with pytest.raises(ValueError, match=f"comparison.json is damaged .{why}"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("scores", {}), ("scores", {"kNN": [0.5]}), ("seconds", []), ("seeds", [0, 0, 1]), ("seeds", []), ("curves", [])],
)
def test_a_method_without_a_score_a_seed_is_named(tmp_path: Path, name: str, value: object) -> None:
    found = Outcome(tmp_path, "scenes", [FIRST, SECOND], 400).to_json()
    found["methods"][1][name] = value
    (tmp_path / "comparison.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match="has not one score a seed"):
        read(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"memory": "much"}', "[" * 50_000, '{"memory": 1e400}'])
def test_a_cost_that_was_not_noted_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "cost.json").write_text(text)
    assert cost_of(tmp_path) == Cost()


def test_the_time_of_processors_stands_beside_that_of_the_clock_which_other_programs_distort(tmp_path: Path) -> None:
    timed = Outcome(tmp_path, "scenes", [replace(FIRST, processor_seconds=7.6), SECOND], 400)
    row, older = (dict(zip(timed.titles, timed.cells(each), strict=True)) for each in timed.methods)
    assert (row["seconds"], row["processor seconds"]) == ("9", "8")
    assert (older["seconds"], older["processor seconds"]) == ("9", "")


def test_comparisons_and_runs_that_noted_no_time_of_processors_are_read(tmp_path: Path) -> None:
    found = Outcome(tmp_path, "scenes", [FIRST, SECOND], 400).to_json()
    for each in found["methods"]:
        del each["processor_seconds"]
    (tmp_path / "comparison.json").write_text(json.dumps(found))
    assert read(tmp_path).methods == [FIRST, SECOND]
    (tmp_path / "cost.json").write_text('{"memory": 5}')
    assert cost_of(tmp_path) == Cost(5, None)


def test_the_choice_of_query_images_is_an_error_of_its_own() -> None:
    assert Outcome(Path(), "scenes", [FIRST, SECOND], 400).standard_error == pytest.approx(0.025)  # sqrt(.5 x .5 / 400)


def test_every_method_has_a_run_to_show() -> None:
    found = Outcome(Path("there"), "scenes", [FIRST, outcome_of("jcl", [0.1], seeds=(2,))], 400)
    assert [run.folder for run in found.runs()] == [Path("there/simclr-0"), Path("there/jcl-2")]


DIFFERING: SettingsByMethod = {
    "optimizer.lr": {"simclr": 0.06, "dcl": 0.03},
    "schedule.at": {"simclr": [1, 2], "dcl": [3, 4]},
}


def test_what_methods_differ_in_besides_stands_under_the_table_and_in_the_file(tmp_path: Path) -> None:
    found = Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, differing=DIFFERING)
    words = "The methods differ also in: optimizer.lr (simclr 0.06, dcl 0.03), schedule.at (simclr [1, 2], dcl [3, 4])."
    assert found.table().splitlines()[-1].endswith(f" {words}")
    (tmp_path / "comparison.json").write_text(json.dumps(found.to_json()))
    assert read(tmp_path) == found


def test_steps_and_images_seen_are_in_the_table() -> None:
    fewer = MethodOutcome("cacr", (0, 1, 2), 12, 5, 100, 1200, SECOND.curves, SECOND.scores, [9.0] * 3, None)
    found = Outcome(Path(), "scenes", [FIRST, fewer], 400)
    assert found.titles[:3] == ["batch x copies", "steps", "images seen"]
    assert found.table().splitlines()[2].startswith("| simclr | 32 x 2 | 40 | 1,280 | 50.0")
    assert found.table().splitlines()[3].startswith("| cacr | 12 x 5 | 100 | 1,200 | 52.0")
    assert not found.equal_images
    for same in (SECOND, replace(fewer, images_seen=1272)):  # 1,272 of 1,280: a last batch that was not full
        assert Outcome(Path(), "scenes", [FIRST, same], 400).equal_images


def test_the_rule_of_the_batches_is_read_back(tmp_path: Path) -> None:
    found = Outcome(tmp_path, "scenes", [FIRST, SECOND], 400, batch_rule="positives")
    (tmp_path / "comparison.json").write_text(json.dumps(found.to_json()))
    assert read(tmp_path) == found


def ended(folder: Path, method: str, steps: list[int], *, per_epoch: int = 10, **given: object) -> PlannedRun:
    """A run as it leaves its folder, with scores after these steps."""
    config = configured(None, {"data.name": "scenes", "method.name": method, "out": str(folder / method), **given})
    lines = [{"step": n, "epoch": -(-n // per_epoch), "seconds": float(n), "knn": 0.5} for n in steps]
    (folder / method).mkdir()
    (folder / method / CONFIG).write_text(to_yaml(config))
    (folder / method / METRICS).write_text("\n".join(map(json.dumps, lines)))
    return PlannedRun(method, 0, config)


@pytest.mark.parametrize(
    ("epochs", "steps", "expected"),
    [
        (3.2, [0, 10, 20, 30, 32], [0, 1, 2, 3, 3.2]),
        (3.2, [0, 32], [0, 3.2]),
        (0.5, [0, 5], [0, 0.5]),  # less than one
        (2, [0, 10, 20], [0, 1, 2]),
        (100, [0, 10, 15], [0, 1, 1.5]),  # which max_steps has ended
    ],
)
def test_a_score_stands_at_the_part_of_an_epoch_it_was_measured_at(
    tmp_path: Path, epochs: float, steps: list[int], expected: list[float]
) -> None:
    run = ended(tmp_path, "dcl", steps, epochs=epochs)
    assert [point.epoch for point in score_curve(Run(run.folder))] == pytest.approx(expected)


def test_where_there_is_knn_the_score_without_labels_has_no_column(tmp_path: Path) -> None:
    run = ended(tmp_path, "dcl", [0, 20], epochs=2)
    for knn, shown in (({"knn": 0.5}, "kNN"), ({}, "own image first")):
        lines = [{"step": n, "seconds": 1.0, "instance": 0.9, **knn} for n in (0, 20)]
        (run.folder / METRICS).write_text("\n".join(map(json.dumps, lines)))
        assert list(collect(tmp_path, "scenes", [run], {}, images=320, queries=10).methods[0].scores) == [shown]


def test_a_score_that_one_run_lacks_is_no_score_of_its_method(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    runs = [ended(folder, "dcl", [0, 20], epochs=2) for folder in (tmp_path, tmp_path / "1")]
    more = {runs[0].folder: {"linear": 0.5, "mlp": 0.6}, runs[1].folder: {"mlp": 0.7}}
    found = collect(tmp_path, "scenes", runs, more, images=320, queries=10)
    assert found.methods[0].scores == {"kNN": [0.5, 0.5], "mlp": [0.6, 0.7]}
    assert list(collect(tmp_path, "scenes", runs[::-1], more, images=320, queries=10).methods[0].scores) == [
        "kNN",
        "mlp",
    ]


@pytest.mark.parametrize(("drop_last", "seen"), [(True, 32 * 20), (False, 2 * 310)])
def test_images_are_counted_once_in_a_last_batch_that_is_not_full(tmp_path: Path, drop_last: bool, seen: int) -> None:
    run = ended(tmp_path, "dcl", [0, 20], epochs=2, batch_size=32, drop_last=drop_last)
    images = 330 if drop_last else 310  # ten batches an epoch
    (found,) = collect(tmp_path, "scenes", [run], {}, images=images, queries=10).methods
    assert (found.steps, found.images_seen) == (20, seen)
