from __future__ import annotations

import re
from pathlib import Path

from manyview.report.run_record import read_records
from manyview.report.sections.curves import curves
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured

TITLES = [
    "Loss", "kNN by epoch", "kNN by time", "Alignment and uniformity", "Similarity", "Entropy of the negatives",
    "Dimensions in use", "Coupling", "Gradient", "Learning rate",
]  # fmt: skip


def titles(text: str) -> list[str]:
    return re.findall("<h3>([^<]*)</h3>", text)


def test_all_that_training_wrote_down_is_drawn(run: Run) -> None:
    text = curves(read_records([run]))
    assert titles(text) == TITLES
    assert 'class="strip"' in text


def test_several_runs_share_each_chart(run: Run, other: Run) -> None:
    text = curves(read_records([run, other]))
    assert "Gap of similarities" in titles(text)
    loss = text.partition("<h3>Loss</h3>")[2].partition("</svg>")[0]
    assert re.findall('data-name="([^"]*)"', loss) == ["dcl", "simclr"]


def test_what_was_not_measured_is_not_drawn(run: Run, tmp_path: Path) -> None:
    found = measured(
        copy(run, tmp_path / "a"), {"step": 1, "epoch": 1, "loss": 2.0}, {"step": 2, "epoch": 1, "loss": 1.0}
    )
    assert titles(curves([found])) == ["Loss"]


def test_without_measurements_the_section_says_so(run: Run, tmp_path: Path) -> None:
    assert "is left out: metrics.jsonl holds no measurement yet" in curves(read_records([copy(run, tmp_path / "a")]))


def test_the_loss_on_held_out_images_is_drawn_beside(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 2.0, "validation_loss": 2.5} for step in (1, 2)]
    assert 'data-name="held-out"' in curves([measured(copy(run, tmp_path / "a"), *lines)])


def test_every_term_has_a_curve_in_the_chart_of_the_loss(run: Run, tmp_path: Path) -> None:
    lines = [
        {"step": step, "epoch": 1, "loss": 3.0, "loss/crops": 2.0, "loss/<jigsaw>": 1.0, "validation_loss": 2.5}
        for step in (1, 2)
    ]
    found = measured(copy(run, tmp_path / "a"), *lines)
    assert found.terms == ["crops", "<jigsaw>"]
    text = curves([found])
    assert re.findall('data-name="([^"]*)"', text) == ["training", "held-out", "crops", "&lt;jigsaw&gt;"]
    assert titles(text) == ["Loss"]


def test_beside_another_run_a_run_of_several_terms_has_one_curve(run: Run, other: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 3.0, "loss/crops": 2.0, "loss/jigsaw": 1.0} for step in (1, 2)]
    found = measured(copy(run, tmp_path / "a"), *lines)
    loss = curves([found, read_records([other])[0]]).partition("</svg>")[0]
    assert len(re.findall("data-name=", loss)) == 2


def test_the_health_is_a_strip_of_as_many_steps(run: Run, tmp_path: Path) -> None:
    words = [(10, "starting"), (20, "starting"), (30, "healthy"), (70, "diverging")]
    lines = [{"step": step, "epoch": 1, "loss": 1.0, "health": word} for step, word in words]
    text = curves([measured(copy(run, tmp_path / "a"), *lines)])
    assert (
        "Health over the steps: starting for 20 steps, then healthy for 10 steps, then diverging for 40 steps" in text
    )
