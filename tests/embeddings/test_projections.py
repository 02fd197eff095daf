"""What a report is given of a run with several views."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.core.errors import UserError
from manyview.embeddings.projections import project_run
from manyview.evaluate import prepare
from manyview.features.retrieval import recalls
from manyview.training.run import Run
from tests.tiny import many_views, pretrain, sensors


def test_held_out_samples_are_projected_in_every_view(tmp_path: Path) -> None:
    data = sensors(tmp_path / "data", 12)
    (data / "test" / "thermal" / "5.png").unlink()
    run = Run(many_views(tmp_path / "run", data, "rgb,thermal", max_steps=2))
    found = project_run(run, workers=0)
    assert found.held_out
    assert len(found.data) == len(found.ids) == 12
    missing = [row for row in range(12) if found.data.name(row) == "test/5"]
    assert (~found.present["thermal"]).nonzero()[:, 0].tolist() == missing
    assert found.present["rgb"].all()
    whole = found.present["thermal"]
    expected, _ = prepare(run, workers=0).projections("test")  # of the samples that have both
    for view, vectors in found.vectors.items():
        torch.testing.assert_close(vectors[whole], expected[view], atol=1e-5, rtol=0)
    assert set(recalls(found.vectors, found.present)) == {("rgb", "thermal"), ("thermal", "rgb")}
    assert len(project_run(run, samples=5, workers=0).ids) == 5


def test_a_run_of_one_view_has_nothing_to_compare(tmp_path: Path) -> None:
    assert pretrain(tmp_path, "--quiet", max_steps=1) == 0
    with pytest.raises(UserError, match="nothing to compare across views"):
        project_run(Run(tmp_path))
