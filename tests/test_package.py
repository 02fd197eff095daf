"""What is installed by `pip install manyview`: everything that a command needs, and its description."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip would."""
    folder = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_fabric_is_one_without_the_advisory_about_checkpoints() -> None:
    """Earlier ones have an advisory about checkpoints."""
    (least,) = re.findall(r'"lightning-fabric>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert [int(each) for each in least.split(".")] >= [2, 6, 6]


@pytest.mark.slow
def test_it_has_all_recipes_and_the_files_of_the_report_and_no_tests(wheel: Path) -> None:
    there = {path.relative_to(wheel / "manyview" / "recipes") for path in wheel.rglob("recipes/**/*.yaml")}
    assert there == {path.relative_to(ROOT / "recipes") for path in (ROOT / "recipes").rglob("*.yaml")}
    assert (wheel / "manyview" / "py.typed").is_file()
    assert (wheel / "manyview" / "report" / "style.css").read_text() == (
        ROOT / "src" / "manyview" / "report" / "style.css"
    ).read_text()
    assert {path.name.partition("-")[0] for path in wheel.iterdir()} == {"manyview"}


@pytest.mark.slow
def test_its_description_names_its_license_and_no_place_that_may_not_be_there(wheel: Path) -> None:
    (file,) = wheel.glob("*.dist-info/METADATA")
    text = file.read_text()
    assert "License-Expression: Apache-2.0\n" in text
    assert "Project-URL" not in text
    assert "the weights you train are yours" in text


@pytest.mark.slow
def test_a_command_runs_from_it_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-m", "manyview", "pretrain", "--recipe", "demo", "--smoke", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "run" / "encoder.safetensors").is_file()
    assert (tmp_path / "run" / "report.html").is_file()
