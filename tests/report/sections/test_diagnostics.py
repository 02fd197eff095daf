from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings
from manyview.report.run_record import read_records
from manyview.report.sections.diagnostics import (
    ENTROPY,
    ON_HELD_OUT,
    ON_TRAINING,
    agreement,
    coupling,
    diagnostics,
    entropy,
    spectra,
    variance,
)
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured


def test_a_run_without_embeddings_says_why(run: Run) -> None:
    text = diagnostics(read_records([run]), EmbeddedRuns([], {"dcl": "the <data> is gone"}))
    assert "<strong>The embeddings of dcl</strong> is left out: the &lt;data&gt; is gone" in text
    assert "Entropy on held-out images" in text  # from its metrics


def test_a_figure_that_fails_leaves_the_others(
    run: Run, embedded: EmbeddedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manyview.report.sections.diagnostics.spectra", lambda shown: 1 / 0)
    text = diagnostics(read_records([run]), embedded)
    assert "<strong>Spectrum of the features</strong> is left out: division by zero" in text
    assert "<h3>Agreement of augmented views</h3>" in text
    assert "<h3>Weights of positives and negatives</h3>" in text


def test_a_single_run_is_shown_before_training_and_after(embedded: EmbeddedRuns) -> None:
    for drawn in (agreement(embedded.shown), variance(embedded.shown), spectra(embedded.shown)):
        assert ">trained</text>" in drawn
        assert ">untrained</text>" in drawn


def test_several_runs_are_shown_by_their_names(both_embedded: EmbeddedRuns) -> None:
    for drawn in (agreement(both_embedded.shown), variance(both_embedded.shown), spectra(both_embedded.shown)):
        assert ">dcl</text>" in drawn
        assert ">simclr</text>" in drawn
        assert "untrained" not in drawn


def test_the_caption_says_how_many_views_and_dimensions(embedded: EmbeddedRuns) -> None:
    assert "Mean cosine of 32 augmented views of an image, for 30 images" in agreement(embedded.shown)
    assert "of 16, untrained" in spectra(embedded.shown)  # RankMe, and the encoder's dimensions


@pytest.mark.parametrize(("held_out", "title"), [(True, ON_HELD_OUT), (False, ON_TRAINING)])
def test_training_images_are_not_called_held_out(held_out: bool, title: str, run: Run, tmp_path: Path) -> None:
    record = measured(copy(run, tmp_path / "a"), {"step": 1, "epoch": 0, "loss": 2.0})
    snapshots = [
        SimpleNamespace(
            epoch=epoch, measures={ENTROPY: 1.0, f"{ENTROPY}_limit": 2.0}, embeddings=SimpleNamespace(held_out=held_out)
        )
        for epoch in (0, 1)
    ]
    shown = SimpleNamespace(record=record, snapshots=snapshots, contrasts=True)
    drawn = entropy([record], [shown])  # type: ignore[list-item]
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


def test_a_method_without_a_contrast_has_no_figures_of_one(
    run: Run, embedded: EmbeddedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunEmbeddings, "contrasts", False)
    text = diagnostics(read_records([run]), embedded)
    for title in ("Coupling by batch size", "Weights of positives and negatives", "neighbourhood"):
        assert title not in text
    assert "left-out" not in text
    assert "Spectrum of the features" in text
