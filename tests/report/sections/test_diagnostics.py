from __future__ import annotations

import pytest

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.run_record import read_records
from manyview.report.sections.diagnostics import diagnostics
from manyview.training.run import Run


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
