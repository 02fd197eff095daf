"""`manyview pretrain`: what it refuses in one line, what it takes, and its help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import manyview
from manyview.cli import main as cli
from tests.cli.said import one_line
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
    "batch larger than the data": ({"batch_size": 64}, "batch_size=64 is more than the 49 samples: give more images"),
    "no such encoder": ({"encoder": "resnt18"}, "there is no encoder 'resnt18'; nearest: resnet, timm/resnet18"),
    "an option that the encoder lacks": ({"encoder__options": "{width: [8]}"}, "patchnet takes widths"),
    "no gpu": ({"device": "cuda"}, "cuda was asked for and there is none here"),
    "half precision without one": ({"precision": "fp16"}, "fp16 needs a GPU"),
    "no such logger": ({"loggers": "tensorbord"}, "did you mean 'tensorboard'?"),
    "no such evaluator": (
        {"evaluators": "nkn", "max_steps": 1},
        "evaluators: there is none named 'nkn'; did you mean 'knn'?",
    ),
    "two views for a method of one": ({"views": "L,ab"}, "views: dcl sees one view, got L, ab; give one of them"),
    "a view that the data lacks": ({"views": "depth"}, "views: the data has no 'depth'; it has image"),
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


def test_folders_that_cannot_be_learnt_from_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert pretrain(tmp_path / "run", data=tmp_path / "empty") == 2
    one_line(capsys, "no images below")
    for count, few in ((1, "1 training image is"), (3, "3 training images are")):
        assert pretrain(tmp_path / "run", data=pictures(tmp_path / str(count), count), batch_size=2) == 2
        one_line(capsys, f"data: {few} too few: an image learns by differing from the others of its batch; give 8")
        assert not (tmp_path / "run").exists()
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
    assert "usage: manyview pretrain [--FLAG VALUE ...]" in said
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
    ("method", "line"),
    [
        *(
            (each, "core +the view that the others are contrasted with; the first unless named")
            for each in ("cmc", "cmc_moco", "cmc_patch")
        ),
        ("prediction", "target +the view that is predicted; the last unless named"),
    ],
)
def test_help_says_which_view_is_meant_where_none_is_named(
    method: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pretrain", "--method", method, "--help"]) == 0
    assert re.search(f"^ +{line}", capsys.readouterr().out, re.MULTILINE)


def test_a_gpu_without_memory_left_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr("manyview.data.Loader.epoch", full)
    assert pretrain(tmp_path) == 1
    said = capsys.readouterr()
    *_, last = said.out.splitlines()  # what is about to happen, and nothing of the error
    assert last == f"run folder {tmp_path}"
    assert said.err.count("\n") == 1
    assert "the GPU's memory is full; start again (another --out) with --micro-batch 64" in said.err


@pytest.mark.parametrize("flag", ["--recipe", "--resume"])
def test_a_flag_that_needs_a_value_says_so(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", flag]) == 2
    assert f"{flag[2:]}: expected a text or null, got none; write {flag} VALUE" in capsys.readouterr().err


@pytest.mark.parametrize(("flags", "said"), [
    (["--recipe", "demo"], "recipe: cannot be given with --resume"),
    (["--smoke"], "smoke: cannot be given with --resume"),
    (["--out", "elsewhere"], "out: elsewhere was given beside a run to go on with"),
])  # fmt: skip
def test_what_a_begun_run_would_ignore_is_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("data:\n  name: scenes\n")
    assert cli.main(["pretrain", "--resume", str(tmp_path), *flags]) == 2
    one_line(capsys, said)
