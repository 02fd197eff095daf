from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from manyview.report.sections.entropy import NAME, SEEN, TITLE, entropy
from manyview.training.run import Run
from tests.report.test_run_record import copy, measured


@pytest.mark.parametrize(("held_out", "title"), [(True, TITLE), (False, SEEN)])
def test_what_training_sees_is_not_called_kept_aside(held_out: bool, title: str, run: Run, tmp_path: Path) -> None:
    found = measured(copy(run, tmp_path / "a"), {"step": 1, "epoch": 0, "loss": 2.0})
    moments = [
        SimpleNamespace(
            epoch=epoch, measures={NAME: 1.0, f"{NAME}_limit": 2.0}, looks=SimpleNamespace(held_out=held_out)
        )
        for epoch in (0, 1)
    ]
    drawn = entropy([found], [SimpleNamespace(told=found, moments=moments)])  # type: ignore[list-item]
    assert drawn is not None
    assert title in drawn
    assert ("does not see" in drawn) == held_out
