"""`manyview show`: a recipe with all its settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from manyview.cli import main as cli
from manyview.config.recipes import read, recipes
from tests.cli.said import one_line


def test_a_recipe_is_shown_with_all_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "demo"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# ")
    assert yaml.safe_load(said)["data"]["name"] == "scenes"
    assert cli.main(["show"]) == 0
    assert "--batch-size" in capsys.readouterr().out
    assert cli.main(["show", "demoo"]) == 2
    one_line(capsys, "did you mean 'demo'?")


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_can_be_shown_and_one_without_data_with_a_placeholder(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", name]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["data"]["name"] == read(name).settings.get("data.name", "DIR")
    assert shown["method"]["name"] == read(name).settings["method.name"]


def test_settings_for_data_that_a_recipe_does_not_name_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("data: {imbalance: linear}\n")
    assert cli.main(["show", str(tmp_path / "mine.yaml")]) == 0
    data = yaml.safe_load(capsys.readouterr().out)["data"]
    assert (data["name"], data["imbalance"]) == ("DIR", "linear")
