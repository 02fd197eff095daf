"""`manyview evaluate`: the table, where results go, settings as flags, and one line for what is wrong."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from manyview.cli import main as cli
from manyview.encoders import create, save
from manyview.evaluate.protocols import PROTOCOLS
from manyview.evaluate.results import read
from manyview.evaluate.task import Score, Task
from tests import tiny
from tests.evaluate import runs
from tests.evaluate.pictures import encoder

SCENES = ["--data", "scenes", "--data.count", "40", "--data.size", "16"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path / "cache"))


def evaluate(*words: object) -> int:
    return cli.main(["evaluate", *map(str, words)])


def test_a_run_is_judged_on_its_own_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.made(tmp_path / "run")
    assert evaluate(run.folder, "--knn.k", 5, "--linear-fast.cs", "0.01,0.1") == 0
    out = capsys.readouterr().out
    assert "49 training images, 5 held out, 2 classes" in out
    assert "protocol" in out
    assert "untrained" in out
    assert f"wrote {run.folder / 'results.json'}" in out
    found = {each.protocol: each for each in read(run.folder)}
    assert found["knn"].settings["k"] == 5
    assert found["linear-fast"].settings["cs"] == [0.01, 0.1]
    assert evaluate("--knn.k=5", run.folder, "--protocols", "knn") == 0
    again = capsys.readouterr()
    assert "knn: computed on" in again.err
    assert again.out.count("knn (k 5, temperature 0.1)") == 1


def test_labels_of_a_run_can_be_given_without_naming_its_images_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(60):
        colour = (4 * number, 0, 0) if number % 2 else (0, 4 * number, 0)
        Image.new("RGB", (16, 16), colour).save(photos / f"{'red' if number % 2 else 'green'}_{number}.png")
    flags = "--augmentation.size 16 --batch-size 16 --max-steps 2 --evaluate-every 0 --report false --quiet true"
    assert cli.main(["pretrain", "--data", str(photos), "--out", str(tmp_path / "run"), *flags.split()]) == 0
    assert evaluate(tmp_path / "run", "--protocols", "knn", "--knn.k", 5) == 2
    assert "has no labels to evaluate with" in capsys.readouterr().err
    assert evaluate(tmp_path / "run", "--protocols", "knn", "--knn.k", 5, "--data.labels", r"([a-z]+)_\d+") == 0
    assert "54 training images, 6 held out, 2 classes" in capsys.readouterr().out


def test_an_encoder_by_name_says_that_it_is_untrained_and_has_a_folder_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("patchnet", *SCENES, "--protocols", "retrieval", "--seed", 2, "--no-cache") == 0
    out = capsys.readouterr().out
    assert "its weights are random: give --pretrained, or --weights FILE" in out
    assert "40 training images, 40 in its test split, 10 classes" in out
    assert [each.seed for each in read(tmp_path / "evaluations" / "patchnet")] == [2]
    assert not (tmp_path / "cache").exists()


def test_weights_of_a_file_and_a_cache_of_ones_own(tmp_path: Path) -> None:
    save(encoder(), tmp_path / "mine.safetensors")
    assert evaluate("mine.safetensors", *SCENES, "--protocols", "knn", "--cache", tmp_path / "kept") == 0
    assert len(read(tmp_path / "evaluations" / "mine")) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 4  # trained and untrained, to learn from and to test on


def test_transfer_is_judging_on_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs.made(tmp_path / "run")
    for name, count in (("cats", 60), ("dogs", 80)):
        tiny.pictures(tmp_path / name, count, classes=3, flat=True)
    assert (
        evaluate(run.folder, "--transfer-to", "cats,dogs", "--protocols", "knn", "--knn.k", 3, "--data.split", "train")
        == 0
    )
    assert [each.data["name"] for each in read(run.folder)] == ["cats", "dogs"]
    out = capsys.readouterr().out
    assert "cats: 54 training images, 6 held out, 3 classes" in out
    assert "dogs: 72 training images, 8 held out, 3 classes" in out


def test_of_a_run_that_has_not_ended_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiny.pretrain(tmp_path / "run", "--quiet", max_steps=1) == 0
    for unlinked in (False, True):
        if unlinked:
            (tmp_path / "run" / "encoder.safetensors").unlink()
        capsys.readouterr()
        assert evaluate(tmp_path / "run", "--protocols", "knn", "--recompute") == 0
        assert ("has not ended; this is the encoder of its last checkpoint" in capsys.readouterr().err) is unlinked


def test_scores_are_printed_as_they_come_and_kept_when_the_rest_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def retrieval(task: Task) -> Iterator[Score]:
        raise KeyboardInterrupt
        yield "never", 0.0

    monkeypatch.setitem(PROTOCOLS, "retrieval", retrieval)
    save(encoder(), tmp_path / "mine.safetensors")
    assert evaluate("mine.safetensors", *SCENES, "--protocols", "knn,retrieval", "--no-cache") != 0
    assert capsys.readouterr().out.startswith("knn: top1 ")
    (kept,) = read(tmp_path / "evaluations" / "mine")
    assert kept.protocol == "knn"
    assert kept.untrained is not None
    assert kept.errors is not None
    assert "top1" in kept.errors


def test_the_heading_names_the_file_of_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = create("patchnet", size=32)
    save(whole, tmp_path / "mine.safetensors")
    flags = ("--weights", tmp_path / "mine.safetensors", "--protocols", "knn", "--no-cache")
    assert evaluate("patchnet", *SCENES, *flags) == 0
    assert f"patchnet with {tmp_path / 'mine.safetensors'}: patchnet at 32 px" in capsys.readouterr().out


def test_help_names_the_settings_of_all_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("--help") == 0
    out = " ".join(capsys.readouterr().out.split())
    for flag in (
        "--knn.k",
        "--linear-fast.held-out",
        "--fewshot.shots",
        "--linear.recipe",
        "--supervised.epochs",
        "--no-cache",
    ):
        assert flag in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a run's folder, or an encoder"),
        (["patchnet"], "data: is needed; give --data"),
        (["patchnet", *SCENES, "--knn.q", "3"], "knn.q: there is no such setting"),
        (["patchnet", *SCENES, "--mlp.lr", "3"], "there is no protocol 'mlp' in --protocols knn,linear-fast"),
        (["patchnet", *SCENES[:2], "--data.size", "x"], "data.size: expected a whole number"),
        (["patchnet", *SCENES, "--data.root", "x"], "data.root: there is no such setting"),
        (["patchnet", *SCENES, "--transfer-to", "scenes"], "transfer-to: is instead of --data"),
        (["patchnet", "--data.count", "3"], "data.count: give --data too"),
        (["patchnet", "extra", *SCENES], "expected --key value, got 'extra'"),
        (["patchnet", *SCENES, "--size", "big"], "size: expected a whole number or null, got 'big'"),
        (["patchnet", *SCENES, "--device", "tpu9"], "device: 'tpu9' cannot be used: "),
        (["patchnet", *SCENES, "--knn.k", "41"], "k: expected 1 to the 40 vectors"),
        (["resnet18"], "there is no run, file or encoder named 'resnet18'; nearest: timm/resnet18"),
        (["patchnet", *SCENES, "--batch-size", "0"], "batch_size: expected at least 1, got 0"),
        (["patchnet", *SCENES, "--workers", "-2"], "workers: expected at least 0, got -2"),
        (["patchnet", *SCENES, "--workers", str(10**20)], "workers: expected at most 1024, got 1"),
        (["patchnet", *SCENES, "--batch-size", str(10**20)], "batch_size: expected at most 2147483647, got 1"),
        (["patchnet", *SCENES, "--seed", str(10**20)], "seed: expected a number from 0 to 9223372036854775807, got 1"),
        (["patchnet", *SCENES, "--seed", "-1"], "seed: expected a number from 0 to 9223372036854775807, got -1"),
        (["patchnet", *SCENES, "--size", "0"], "size: expected a whole number from 1 to"),
        (["patchnet", *SCENES, "--protocols", ""], "protocols: expected a value, got none; write --protocols VALUE"),
        (["patchnet", *SCENES, "--knn.kk", "3"], "knn.kk: there is no such setting; knn protocol takes k, temperature"),
        (["nothing/here", *SCENES], "encoder: there is no run, file or encoder named 'nothing/here'"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_out_that_is_a_file_is_refused_before_the_encoder_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Task, "features", None)
    (tmp_path / "file.txt").touch()
    for out in ("file.txt", "file.txt/below"):
        assert evaluate("patchnet", *SCENES, "--out", out) == 2
        error = capsys.readouterr().err
        assert f"out: {out} cannot be written to: {tmp_path / 'file.txt'} is no folder; give another" in error
        assert error.count("\n") == 1


def test_a_cache_that_cannot_be_written_to_is_one_line_of_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert evaluate("patchnet", *SCENES, "--protocols", "retrieval", "--cache", "file.txt") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: features are not kept: file.txt")


def test_data_without_labels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.pictures(tmp_path / "plain", 30)
    assert evaluate("patchnet", "--data", "plain") == 2
    told = capsys.readouterr().err
    assert "data: plain has no labels to evaluate with" in told
    assert "--data.labels" in told


def test_a_data_folder_whose_name_is_no_utf_8_is_judged_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    for name in ("cats", "dogs"):
        tiny.pictures(folder / name, 20)
    words = ["--data", folder, "--protocols", "knn", "--knn.k", 3, "--size", 16, "--workers", 0]
    assert evaluate("patchnet", *words, "--out", folder / "out") == 0
    assert r"/caf\xe9: 36 training images" in capsys.readouterr().out
    assert [each.data["name"] for each in read(folder / "out")] == [str(folder)]


def test_results_that_cannot_be_added_to_are_said_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results.json").write_text('{"accuracy": 1.0}')
    monkeypatch.setattr(Task, "features", None)
    assert evaluate("patchnet", *SCENES, "--out", tmp_path, "--recompute") == 2
    assert "results.json is damaged (it: expected a list, got a table); remove it" in capsys.readouterr().err
    assert (tmp_path / "results.json").read_text() == '{"accuracy": 1.0}'


def test_an_image_that_was_replaced_in_place_makes_a_new_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny.pictures(tmp_path / "data", 60, classes=2)
    words = ["patchnet", "--data", folder, "--protocols", "knn", "--knn.k", 3, "--size", 16, "--workers", 0]
    assert evaluate(*words, "--out", "out") == 0
    assert evaluate(*words, "--out", "out") == 0
    assert "--recompute computes it anew" in capsys.readouterr().err
    replaced = folder / "class1" / "7.png"  # none of those whose pixels are looked at
    tiny.pictures(tmp_path / "other", 1, sides=(24,))
    (tmp_path / "other" / "0.png").rename(replaced)
    features = set((tmp_path / "cache").iterdir())
    for more in ([], ["--recompute"]):
        assert evaluate(*words, *more, "--out", "out") == 0
        assert "computed on" not in capsys.readouterr().err
    assert len(read(Path("out"))) == 2
    assert set((tmp_path / "cache").iterdir()) > features
