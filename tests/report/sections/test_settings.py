from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from manyview.report.run_record import read_records
from manyview.report.sections.settings import settings
from manyview.training.run import Run
from tests.report.test_run_record import copy


def test_the_settings_of_a_run_are_those_of_its_file(run: Run) -> None:
    text = settings(read_records([run]))
    (code,) = re.findall("<pre><code>(.*?)</code></pre>", text, re.DOTALL)
    assert unescape(code) == (run.folder / "config.yaml").read_text()
    assert "<table" not in text


def test_of_several_runs_a_table_has_only_what_differs(run: Run, tmp_path: Path) -> None:
    larger = copy(run, tmp_path / "larger", batch_size=16)
    text = settings(read_records([run, larger]))
    assert re.findall('<th scope="row">([^<]*)</th>', text) == ["batch_size"]
    assert re.findall("<td>([^<]*)</td>", text) == ["8", "16"]


def test_runs_with_the_same_settings_say_so(run: Run, tmp_path: Path) -> None:
    assert "All runs have the same settings." in settings(read_records([run, copy(run, tmp_path / "again")]))
