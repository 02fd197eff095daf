"""`manyview transfer`: the table, flags of tasks, where results go, and one line for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyview.cli import main as cli
from manyview.encoders import create, save
from manyview.evaluate.results import read
from tests.transfer.pictures import folder

FEW = ["--epochs", "1", "--width", "8", "--workers", "0", "--quiet"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save(create("patchnet", size=32, widths=(8, 16), blocks=(1, 1)), "small.safetensors")


def transfer(*words: object) -> int:
    return cli.main(["transfer", *map(str, words)])


def test_a_file_of_weights_is_scored_beside_the_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = folder(tmp_path / "data")
    assert transfer("small.safetensors", "--task", "segment", "--data", root, "--legend", "voc", *FEW) == 0
    out = capsys.readouterr()
    assert "8 training images, 8 in its test split, 21 classes" in out.out
    assert "trained  untrained  supervised" in out.out
    assert "iou aeroplane" in out.out
    assert "trained: the loss" in out.err
    assert "wrote transfers/small/results.json" in out.out
    (result,) = read("transfers/small")
    assert result.settings["legend"] == "voc"
    assert transfer("small.safetensors", "--task", "segment", "--data", root, "--legend", "voc", *FEW) == 0
    assert "the loss" not in capsys.readouterr().err  # nothing was trained again


def test_help_tells_the_settings_of_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert transfer("--help") == 0
    out = capsys.readouterr().out
    assert "--decoder" in out
    assert "--supervised" in out
    assert "segment: Semantic segmentation" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a run's folder"),
        (["patchnet"], "task: is needed"),
        (["patchnet", "--task", "segment"], "data: is needed"),
        (["patchnet", "--task", "detekt"], "task: there is none named 'detekt'"),
        (["patchnet", "--task", "segment", "--data", "scenes", "--depth", "3"], "--depth: there is no such flag"),
        (["patchnet", "--task", "segment", "--data", "scenes", "--decoder", "mlp"], "decoder: expected one of unet"),
        (["patchnet", "--task", "segment", "--data.count", "3"], "data.count: give --data too"),
        (["patchnet", "--task", "segment", "--data", "nowhere"], "neither a folder here nor the name"),
        (["nothing", "--task", "segment", "--data", "scenes"], "there is no run, file or encoder named 'nothing'"),
        (["patchnet", "--task", "segment", "--data", "scenes", "--legend", "x"], "legend: there is no file 'x'"),
        (["patchnet", "--task", "segment", "--data", "cifar10"], "cifar10"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert transfer(*words) == 2
    err = capsys.readouterr().err
    assert told in err
    assert len(err.strip().splitlines()) == 1
