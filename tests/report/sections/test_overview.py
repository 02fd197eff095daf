from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from manyview.report.run_record import read_records
from manyview.report.sections.overview import header, settings, summary
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured


def test_what_came_of_it_is_one_plain_sentence(run: Run, tmp_path: Path) -> None:
    line = {**run.metrics[-1], "health": "healthy", "step": 10, "epoch": 2, "seconds": 200.0}
    found = measured(
        copy(run, tmp_path / "a"),
        {"step": 0, "epoch": 0, "knn": 0.2}, line, {"step": 10, "epoch": 2, "knn": 0.5, "seconds": 200.0},
    )  # fmt: skip
    assert summary(found) == (
        "Not finished. After 2 epochs (10 steps, 3 min 20 s) its nearest neighbours find the class of 50.0% of the "
        "images, 20.0% before training (+30.0 points); the run is healthy."
    )


def test_without_labels_and_without_measurements_it_says_so(run: Run, tmp_path: Path) -> None:
    assert "nothing has been measured yet" in summary(read_records([copy(run, tmp_path / "a")])[0])
    assert "no kNN score" in summary(measured(copy(run, tmp_path / "b"), {"step": 1, "epoch": 1, "loss": 2.0}))


def test_without_labels_a_run_of_several_views_is_told_by_what_they_find_in_one_another(
    run: Run, tmp_path: Path
) -> None:
    names = ("rgb to ir", "ir to rgb")
    before = {f"recall@1/{name}": 0.02 for name in names} | {f"pairs/{name}": 50 for name in names}
    after = {**before, "recall@1/rgb to ir": 0.25, "recall@1/ir to rgb": 0.35}
    found = measured(copy(run, tmp_path / "a"), {"step": 0, **before}, {"step": 10, **after})
    said = (
        "a sample in one view finds itself first in another in 30.0% of cases, 2.0% before training, 2.0% by chance; "
    )
    assert said in summary(found)


def test_a_run_that_has_just_begun_has_no_tick(run: Run, tmp_path: Path) -> None:
    line = {**run.metrics[-1], "step": 1, "health": "starting"}
    begun = header([measured(copy(run, tmp_path / "a"), line)])
    assert '<p class="verdict idle">' in begun
    assert "\N{CHECK MARK}" not in begun
    later = [{**run.metrics[-1], "step": step, "health": "healthy"} for step in range(1, 200, 20)]
    assert "\N{CHECK MARK}" in header([measured(copy(run, tmp_path / "b"), *later)])


def test_the_views_are_among_the_facts(many: Run) -> None:
    assert "<dt>views</dt><dd>rgb, ab, depth</dd>" in header(read_records([many]))


def test_the_header_tells_method_data_encoder_command_and_versions(run: Run) -> None:
    text = header(read_records([run]))
    for expected in ("dcl", "patchnet", "manyview pretrain --recipe", "torch", "Python"):
        assert expected in text


def test_several_runs_are_ordered_by_where_they_ended_and_seeds_stand_together(
    run: Run, other: Run, tmp_path: Path
) -> None:
    for name, seed, score in (("a", 0, 0.5), ("b", 1, 0.6)):
        measured(copy(run, tmp_path / name, seed=seed), {"step": 4, "epoch": 1, "knn": score})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "config.yaml").write_bytes((other.folder / "config.yaml").read_bytes())
    measured(Run(tmp_path / "c"), {"step": 4, "epoch": 1, "knn": 0.57})
    text = header(read_records([Run(tmp_path / name) for name in "abc"]))
    assert "3 runs side by side. kNN at the end: simclr 57.0%, dcl 55.0% (2 seeds, 50.0 to 60.0)." in text


def test_the_settings_of_a_run_are_those_of_its_file(run: Run) -> None:
    text = settings(read_records([run]))
    (code,) = re.findall("<pre><code>(.*?)</code></pre>", text, re.DOTALL)
    assert unescape(code) == (run.folder / "config.yaml").read_text()
    assert "<table" not in text


def test_of_several_runs_a_table_has_only_what_differs(run: Run, tmp_path: Path) -> None:
    larger = copy(run, tmp_path / "larger", batch_size=16)
    text = settings(read_records([run, larger]))
    assert re.findall('<th scope="row">([^<]*)</th>', text) == ["batch_size"]
    assert re.findall("<td>([^<]*)</td>", text) == ["8", "16"]


def test_runs_with_the_same_settings_say_so(run: Run, tmp_path: Path) -> None:
    assert "All runs have the same settings." in settings(read_records([run, copy(run, tmp_path / "again")]))
