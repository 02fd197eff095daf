"""JCL's Fig. 3 of any number of images: as from all embeddings at once."""

from __future__ import annotations

import pytest
import torch

from manyview.data import Scenes
from manyview.diagnose import spread
from manyview.embeddings import view_embeddings
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.model_spread import model_spread
from tests.embeddings.test_view_embeddings import Holed, small


def test_batch_by_batch_it_is_the_spread_of_all_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = ModelSource("mine", {"": small()}), Scenes(40, size=16)
    whole = spread(view_embeddings.embed_model(model, data, images=21, copies=3, workers=0).vectors)
    monkeypatch.setattr(view_embeddings, "PICTURES", 8)
    found = model_spread(model, data, images=21, copies=3, workers=0)
    assert len(found.similarity) == 21
    torch.testing.assert_close(found.similarity.sort().values, whole.similarity.sort().values, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.variance.sort().values, whole.variance.sort().values, rtol=0, atol=1e-5)


def test_all_images_where_there_are_fewer() -> None:
    found = model_spread(ModelSource("mine", {"": small()}), Scenes(10, size=16), copies=2, workers=0)
    assert len(found.variance) == 10


def test_how_far_it_is_is_told_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view_embeddings, "PICTURES", 4)
    monkeypatch.setattr("manyview.core.progress.LINE_SECONDS", 0.0)
    model, data = ModelSource("mine", {"": small()}), Scenes(10, size=16)
    model_spread(model, data, copies=2, workers=0)
    assert capsys.readouterr().err == ""
    model_spread(model, data, copies=2, workers=0, shown=True)
    lines = [line.partition("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["2 copies each 4/10", "2 copies each 8/10", "2 copies each 10/10"]


def test_a_picture_that_cannot_be_read_is_left_out_and_so_is_its_stand_in() -> None:
    found = model_spread(ModelSource("mine", {"": small()}), Holed(), copies=2, workers=0)
    assert len(found.similarity) == 11
