from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.sections.negatives import ENTROPY, ON_HELD_OUT, ON_TRAINING, coupling, entropy
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured


@pytest.mark.parametrize(("held_out", "title"), [(True, ON_HELD_OUT), (False, ON_TRAINING)])
def test_training_images_are_not_called_held_out(held_out: bool, title: str, run: Run, tmp_path: Path) -> None:
    record = measured(copy(run, tmp_path / "a"), {"step": 1, "epoch": 0, "loss": 2.0})
    snapshots = [
        SimpleNamespace(
            epoch=epoch, measures={ENTROPY: 1.0, f"{ENTROPY}_limit": 2.0}, embeddings=SimpleNamespace(held_out=held_out)
        )
        for epoch in (0, 1)
    ]
    drawn = entropy([record], [SimpleNamespace(record=record, snapshots=snapshots)])  # type: ignore[list-item]
    assert drawn is not None
    assert f"<h3>{title}</h3>" in drawn
    assert ("of held-out images" in drawn) == held_out


def test_without_measurements_and_embeddings_there_is_no_entropy() -> None:
    assert entropy([], []) is None


def test_the_coupling_has_a_box_a_batch_size_and_snapshot(embedded: EmbeddedRuns) -> None:
    (one,) = embedded.shown
    drawn = coupling(one, ": <b>")
    assert "Coupling by batch size: &lt;b&gt;" in drawn
    for name in ("batch 8, epoch 0", "batch 8, epoch 1", "batch 8, epoch 2", "batch 32, epoch 2"):
        assert name in drawn
    assert "at temperature 0.1" in drawn
