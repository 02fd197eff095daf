"""What the page says of a run's scores and of a comparison."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from manyview.comparison.outcome import MethodOutcome, Outcome
from manyview.embeddings.open_model import open_model
from manyview.evaluate.results import Result, put
from manyview.report.images import open_images
from manyview.report.run_record import read_records
from manyview.report.sections.scores import comparison, ranking, scores
from manyview.training.run import Run
from tests.comparison.test_outcome import DIFFERING, FIRST, SECOND
from tests.report.test_run_record import copy, measured

FEWER = MethodOutcome("cacr", (0, 1, 2), 12, 5, 100, 1200, SECOND.curves, SECOND.scores, [9.0] * 3, None)


def test_methods_that_differ_by_themselves_alone_have_no_more_to_say() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, SECOND], 400))
    assert "same data in the same order" in page
    assert "differ also" not in page
    assert "not on as many images" not in page
    assert '</table></div><p class="fine">Batches by the rule same: every method takes as many images a step' in page


def test_the_first_sentence_is_of_all_seeds() -> None:
    found = Outcome(Path(), "scenes", [FIRST, SECOND], 400)
    ahead, behind = sorted(found.methods, key=lambda each: -sum(each.scores["kNN"]))
    text = ranking(found)
    assert text.startswith(f"kNN at the end, mean of 3 seeds: {ahead.method} ")
    assert text.index(ahead.method) < text.index(behind.method)
    assert f"{sum(ahead.scores['kNN']) / 3:.1%}" in text


def test_what_they_differ_in_besides_stands_under_the_table() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, SECOND], 400, differing=DIFFERING))
    assert " The methods differ also in: optimizer.lr (simclr 0.06, dcl 0.03)" in page


def test_images_that_are_not_as_many_for_all_are_named() -> None:
    page = comparison(Outcome(Path(), "scenes", [FIRST, FEWER], 400))
    assert "but not on as many images of it" in page
    assert ">images seen</th>" in page
    assert ">1,200</td>" in page


KNN = {"step": 0, "epoch": 0, "knn": 0.25}, {"step": 10, "epoch": 1, "knn": 0.5}


def result(**fields: object) -> Result:
    usual: dict[str, object] = {
        "protocol": "linear-fast", "settings": {"most": 100}, "scores": {"top1": 0.625, "chosen C": 0.1},
        "data": {"name": "<i>birds"}, "seed": 0, "model": {}, "version": "0", "when": "2026-01-01",
        "untrained": {"top1": 0.375}, "supervised": {"top1": 0.875},
    }  # fmt: skip
    return Result(**{**usual, **fields})  # type: ignore[arg-type]


def test_a_score_stands_beside_its_baselines_and_protocol(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    put(found.folder, result())
    text = scores([found])
    for expected in ("62.5", "+25.0", "37.5", "87.5", "most 100", "chosen C 0.1", "on &lt;i&gt;birds, seed 0"):
        assert expected in text
    assert ">50.0<" in text
    assert "manyview evaluate" not in text


def test_every_score_of_a_protocol_is_on_the_page_those_of_a_long_one_folded(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    put(found.folder, result(scores={f"layer{number} top1": 0.5 for number in range(11)}, untrained={}))
    shown, folded = scores([found]).split("<details>")
    assert "layer7 top1" in shown
    assert "layer8 top1" not in shown
    assert folded.startswith("<summary>3 more scores</summary>")
    assert all(f"layer{number} top1" in folded for number in (8, 9, 10))


def test_a_standard_deviation_has_no_gain(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    put(found.folder, result(scores={"5-shot std": 0.04}, untrained={"5-shot std": 0.02}))
    assert "+2.0" not in scores([found])


def test_what_was_not_measured_has_no_column_and_a_hint_says_how(run: Run, tmp_path: Path) -> None:
    text = scores([measured(copy(run, tmp_path / "a"), *KNN)])
    assert "supervised" not in text
    assert "manyview evaluate" in text


def test_the_best_epoch_is_told_beside_the_last_never_alone(run: Run, tmp_path: Path) -> None:
    text = scores([measured(copy(run, tmp_path / "a"), *KNN, {"step": 20, "epoch": 2, "knn": 0.4})])
    assert "kNN, last epoch (best 50.0%)" in text
    assert ">40.0<" in text


def test_the_linear_probe_of_training_has_its_row(run: Run, tmp_path: Path) -> None:
    first, last = ({**line, "linear": value} for line, value in zip(KNN, (0.125, 0.75), strict=True))
    text = scores([measured(copy(run, tmp_path / "a"), first, last)])
    assert "linear probe, last epoch" in text
    assert ">75.0<" in text
    assert "+62.5" in text
    assert "linear probe" not in scores([measured(copy(run, tmp_path / "b"), *KNN)])


def test_without_any_score_the_section_says_why(run: Run, tmp_path: Path) -> None:
    assert "is left out: nothing was held out to score on" in scores(read_records([copy(run, tmp_path / "a")]))


def test_damaged_results_are_told_and_the_rest_is_shown(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    (found.folder / "results.json").write_text("{")
    text = scores([found])
    assert "is damaged" in text
    assert ">50.0<" in text


def test_scores_of_the_encoder_as_it_was_before_training_went_on_are_left_out(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    shutil.copy(run.folder / "encoder.safetensors", found.folder)
    put(found.folder, result(model={"checksum": open_model(found.folder).checksum}, scores={"top1": 0.75}))
    put(found.folder, result(model={"checksum": "of other weights"}))
    text = scores([found])
    assert "75.0" in text
    assert "62.5" not in text
    assert "evaluations of" in text


def test_runs_are_rows_with_their_names(run: Run, other: Run) -> None:
    text = scores(read_records([run, other]))
    assert 'scope="row" class="name c0">dcl<' in text
    assert 'scope="row" class="name c1">simclr<' in text


def test_every_view_has_its_score_beside_that_of_all(run: Run, tmp_path: Path) -> None:
    lines = {"knn": 0.5, "knn/rgb": 0.4, "knn/<i>": 0.3}
    found = measured(copy(run, tmp_path / "a"), {"step": 0, "knn": 0.2, "knn/rgb": 0.1}, {"step": 9, **lines})
    text = scores([found])
    assert "kNN, all views side by side, last epoch" in text
    cells = re.findall(
        r'<td class="what">kNN of ([^<]*), last epoch</td><td class="number"><strong>([^<]*)</strong>', text
    )
    assert cells == [("rgb", "40.0"), ("&lt;i&gt;", "30.0")]
    assert "+30.0" in text


def test_the_images_that_knn_was_measured_with_are_counted_where_the_data_is_there(run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), *KNN)
    found = replace(found, config=replace(found.config, knn_bank=5000, knn_queries=1000))
    assert "among at most 5,000 training images; at most 1,000 other images as queries" in scores([found])
    data = open_images(run.config)
    assert data.test is not None
    text = scores([found], {found.colour: data})
    assert f"among {len(data.train)} training images; {len(data.test)} test images as queries" in text
    fewer = replace(found, config=replace(found.config, knn_bank=20, knn_queries=25))
    assert "among 20 training images; 25 of the 40 test images as queries" in scores([fewer], {found.colour: data})


def test_without_labels_the_hint_names_what_works_without_and_what_needs_labels(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": step, "instance": 0.5, "instance_images": 10.0} for step in (0, 1)]
    unlabelled = measured(copy(run, tmp_path / "a"), *lines)
    page = scores([unlabelled])
    assert "--protocols knn,linear-fast" not in page
    assert f"manyview evaluate {unlabelled.folder} --data.labels TABLE.csv</code>" in page
    assert f"manyview embed {unlabelled.folder} FOLDER --to FILE.npz</code>" in page
