from __future__ import annotations

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.sections.features import agreement, spectra, variance


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
