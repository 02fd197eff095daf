from __future__ import annotations

import re
from pathlib import Path

from manyview.report.run_record import told
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
    text = curves(told([run]))
    assert titles(text) == TITLES
    assert 'class="strip"' in text


def test_several_runs_share_each_chart(run: Run, other: Run) -> None:
    text = curves(told([run, other]))
    assert "Gap of similarities" in titles(text)
    loss = text.partition("<h3>Loss</h3>")[2].partition("</svg>")[0]
    assert re.findall('data-name="([^"]*)"', loss) == ["dcl", "simclr"]


def test_what_was_not_measured_is_not_drawn(run: Run, tmp_path: Path) -> None:
    found = measured(
        copy(run, tmp_path / "a"), {"step": 1, "epoch": 1, "loss": 2.0}, {"step": 2, "epoch": 1, "loss": 1.0}
    )
    assert titles(curves([found])) == ["Loss"]


def test_without_measurements_the_section_says_so(run: Run, tmp_path: Path) -> None:
    assert "is left out: metrics.jsonl holds no measurement yet" in curves(told([copy(run, tmp_path / "a")]))


def test_the_loss_of_images_kept_aside_is_drawn_beside(run: Run, tmp_path: Path) -> None:
    lines = [{"step": step, "epoch": 1, "loss": 2.0, "validation_loss": 2.5} for step in (1, 2)]
    assert 'data-name="kept aside"' in curves([measured(copy(run, tmp_path / "a"), *lines)])
