"""What each command answers, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import manyview
from manyview.cli import commands
from manyview.cli import main as cli
from manyview.config.config import Config
from manyview.config.recipes import read, recipes
from manyview.encoders import load as load_encoder
from tests.tiny import pictures, pretrain


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"epoch": 3}, "epoch: there is no such setting; did you mean 'epochs'?"),
    "unknown key of a part": ({"loss__temprature": 1}, "did you mean 'loss.temperature'?"),
    "another part's key": ({"loss__strength": 1}, "loss dcl takes"),
    "wrong value": ({"epochs": "many"}, "epochs: expected a number, got 'many'"),
    "a number that cannot be": ({"epochs": 0}, "epochs: expected a number above 0"),
    "unknown method": ({"method": "simlcr"}, "did you mean 'simclr'?"),
    "unknown loss": ({"loss": "dlc"}, "did you mean 'dcl'?"),
    "unknown recipe": ({"recipe": "nothing"}, "is neither a recipe's name nor a file"),
    "missing folder": ({"data": "nowhere/at-all"}, "there is no folder 'nowhere/at-all'"),
    "batch larger than the data": ({"batch_size": 64}, "batch_size=64 is more than the 49 samples"),
    "no such encoder": ({"encoder": "resnt18"}, "there is no encoder 'resnt18'; nearest: timm/resnet18"),
    "an option that the encoder lacks": ({"encoder__options": "{width: [8]}"}, "patchnet takes widths"),
    "no gpu": ({"device": "cuda"}, "cuda was asked for and there is none here"),
    "half precision without one": ({"precision": "fp16"}, "fp16 needs a GPU"),
    "no such logger": ({"loggers": "tensorbord"}, "did you mean 'tensorboard'?"),
    "resume of no run": ({"resume": "."}, "resume: . is no run's folder"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_one_line_and_exit_code_2(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings, text = WRONG[case]
    assert pretrain(tmp_path / "run", **settings) == 2
    one_line(capsys, text)


def one_line(capsys: pytest.CaptureFixture[str], text: str) -> None:
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert text in said.err


def test_folders_that_cannot_be_learnt_from_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert pretrain(tmp_path / "run", data=tmp_path / "empty") == 2
    one_line(capsys, "no images below")
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "one", 1)) == 2
    one_line(capsys, "one image cannot be contrasted")
    (tmp_path / "broken").mkdir()
    for number in range(20):
        (tmp_path / "broken" / f"{number}.png").write_text("no picture")
    assert pretrain(tmp_path / "run", data=tmp_path / "broken") == 2
    one_line(capsys, "none that was looked at can be read")


def test_a_run_folder_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert pretrain(tmp_path / "file") == 2
    one_line(capsys, "file is a file; give a folder")
    assert pretrain(tmp_path / "file" / "run") == 2
    one_line(capsys, "out: ")
    assert pretrain(Path("/proc/run")) == 2
    one_line(capsys, "out: /proc/run cannot be written to")


def test_an_encoder_that_cannot_take_the_size_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", encoder="small_alexnet", encoder__options="{}", augmentation__size=4) == 2
    one_line(capsys, "size")


def test_pictures_of_different_sizes_and_grey_ones_are_learnt_from(tmp_path: Path) -> None:
    sizes = pictures(tmp_path / "sizes", 40, classes=2, sides=(30, 41, 57))
    assert pretrain(tmp_path / "one", "--quiet", data=sizes, workers=0, max_steps=2) == 0
    grey = pictures(tmp_path / "grey", 40, classes=2, mode="L")
    assert pretrain(tmp_path / "two", "--quiet", data=grey, max_steps=2) == 0
    assert len(manyview.Run(tmp_path / "two").knn) == 2


def test_help_shows_the_settings_of_the_parts_that_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", "--method", "jcl", "--lr", "0.5", "-h"]) == 0
    said = capsys.readouterr().out
    assert "usage: manyview pretrain --data PATH|NAME" in said
    lines = dict(
        line.split(maxsplit=1) for line in said.splitlines() if line.startswith("  --") and " " in line.strip()
    )
    assert lines["--method"] == "jcl"
    assert "--loss.strength" in lines
    assert lines["--batch-size"] == "64"
    assert lines["--loggers"] == "tensorboard"
    assert lines["--quiet"] == "false"
    assert "checkpoint_minutes  a checkpoint after so many minutes" in said


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("methods", "cacr_moco"), ("losses", "info_nce"), ("augmentations", "moco-v2"), ("encoders", "timm/resnet18"),
        ("data", "cifar10"), ("recipes", "demo"), ("heads", "mlp"), ("memories", "queue"), ("momentum", "cosine"),
    ],
)  # fmt: skip
def test_lists_name_what_there_is(what: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", what]) == 0
    assert name in [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_lists_can_be_narrowed_and_an_unknown_one_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "methods", "moco"]) == 0
    assert all("moco" in line.split()[0] for line in capsys.readouterr().out.splitlines())
    assert cli.main(["list", "methods", "zzz"]) == 2
    one_line(capsys, "no name has 'zzz' in it")
    assert cli.main(["list", "metods"]) == 2
    one_line(capsys, "invalid choice: 'metods'")


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


def test_a_run_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--quiet", max_steps=1) == 0
    assert cli.main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "net.safetensors")]) == 0
    assert f"wrote {tmp_path / 'net.safetensors'}" in capsys.readouterr().out
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(load_encoder(tmp_path / "net.safetensors").eval()(x), manyview.load(run)(x))
    assert cli.main(["export", str(run), "--to", "onx"]) == 2
    one_line(capsys, "invalid choice: 'onx'")
    assert cli.main(["export", str(tmp_path), "--to", "onnx"]) == 2
    one_line(capsys, "is no run's folder")


@pytest.mark.parametrize("to", ["timm", "torchvision", "onnx"])
def test_a_run_is_loaded_by_its_own_library_with_the_lines_that_export_prints(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = {"timm": "timm/test_resnet", "torchvision": "torchvision/squeezenet1_1"}.get(to, "patchnet")
    assert pretrain(tmp_path, "--quiet", encoder=encoder, encoder__options="{}", max_steps=1) == 0
    capsys.readouterr()
    assert cli.main(["export", str(tmp_path), "--to", to]) == 0
    found: dict[str, Any] = {}
    exec(capsys.readouterr().out.partition("\n")[2], found)  # after "wrote ..."
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        theirs = torch.from_numpy(found["embed"](x.numpy())) if to == "onnx" else found["model"](x)
        torch.testing.assert_close(theirs, manyview.load(tmp_path)(x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_demo_learns_twenty_points(tmp_path: Path) -> None:
    assert cli.main(["demo", "--out", str(tmp_path)]) == 0
    untrained, *_, trained = (score for _, score in manyview.Run(tmp_path).knn)
    assert trained - untrained >= 0.2


def test_the_demo_trains_and_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Config] = []
    monkeypatch.setattr(commands, "start", asked.append)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    assert asked[0].data["name"] == "scenes"
    assert asked[0].out == "runs/demo"
    assert "What to do next:" in capsys.readouterr().out
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "encoder.safetensors").write_text("")
    assert cli.main(["demo"]) == 0
    assert asked[1].out == "runs/demo-2"  # the first one is complete


def test_a_gpu_without_memory_left_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Config) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(commands, "start", full)
    assert pretrain(tmp_path) == 1
    one_line(capsys, "the GPU's memory is full; start again (another --out) with --micro-batch 64")
