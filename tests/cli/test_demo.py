"""`manyview demo`: what it trains, and what it says afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

import manyview
from manyview.cli import demo as module
from manyview.cli import main as cli
from manyview.config.config import Config


@pytest.mark.slow
def test_the_demo_learns_twenty_points(tmp_path: Path) -> None:
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    untrained, *_, trained = (score for _, score in manyview.Run(tmp_path).knn)
    assert trained - untrained >= 0.2


def test_the_demo_trains_and_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Config] = []
    monkeypatch.setattr(module, "start", asked.append)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    assert asked[0].data["name"] == "scenes"
    assert asked[0].out == "runs/demo"
    assert "What to do next:" in capsys.readouterr().out
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "encoder.safetensors").write_text("")
    assert cli.main(["demo"]) == 0
    assert asked[1].out == "runs/demo-2"  # the first one is complete
