"""The process of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manyview.comparison import worker
from manyview.comparison.outcome import COST, peak_memory
from manyview.config.recipes import to_yaml
from manyview.training.launch import configured


def test_the_largest_peak_of_all_sittings_is_kept(tmp_path: Path) -> None:
    (tmp_path / COST).write_text(json.dumps({"memory": 1}))
    worker._note_memory(tmp_path)
    first = peak_memory(tmp_path)
    assert first is not None
    assert first > 50 << 20
    (tmp_path / COST).write_text(json.dumps({"memory": 1 << 60}))
    worker._note_memory(tmp_path)
    assert peak_memory(tmp_path) == 1 << 60


def test_a_run_that_cannot_begin_is_one_line_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a file"
    out.write_text("")
    settings = tmp_path / "settings.yaml"
    settings.write_text(to_yaml(configured(None, {"data.name": "scenes", "data.count": 64, "out": str(out)})))
    assert worker.main(str(settings)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{out}: ")
    assert not (tmp_path / COST).exists()
