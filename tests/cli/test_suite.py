from __future__ import annotations

from pathlib import Path

import pytest

from manyview.cli.main import main
from manyview.encoders import save
from tests.data import fakes
from tests.evaluate.pictures import encoder
from tests.evaluate.test_suite import eurosat

QUICK = ["--shot-transfer.shots", "2", "--shot-transfer.seeds", "1", "--shot-transfer.epochs", "1", "--no-cache",
         "--shot-transfer.lrs", "0.01"]  # fmt: skip


def test_two_encoders_are_compared_on_the_sets_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    eurosat(tmp_path / "data")
    for number, name in enumerate(("before", "after")):
        save(encoder(number), tmp_path / f"{name}.safetensors")
    flags = ["--suite", "elevater", "--against", "before.safetensors", "--data.root", "data", *QUICK]
    assert main(["evaluate", "after.safetensors", *flags]) == 0
    shown = capsys.readouterr()
    assert "after.safetensors on eurosat: 2-shot finetune " in shown.out
    assert "left out, caltech101: not found" in shown.err
    assert "The mean is over 1 of 20 sets." in shown.out
    table = (tmp_path / "evaluations/after/elevater.md").read_text()
    assert table.splitlines()[0] == "|  |  | EuroSAT | Mean | # Wins |"
    assert "Left out: caltech101, cifar10" in table
    assert (tmp_path / "evaluations/before/results.json").exists()


def test_a_set_that_fails_is_named_and_the_others_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fakes.hateful_memes(tmp_path / "data")  # too few for two shots
    flags = ["evaluate", "patchnet", "--suite", "elevater", "--data.root", "data", "--out", "out", *QUICK]
    assert main(flags) == 2  # all that is there
    shown = capsys.readouterr()
    assert "all 1 sets of elevater that are there failed, hateful-memes by this: " in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err
    eurosat(tmp_path / "data")
    assert main(flags) == 0
    shown = capsys.readouterr()
    assert "left out, hateful-memes: " in shown.err
    assert "The mean is over 1 of 20 sets." in shown.out
    assert "Failed and left out, hateful-memes: " in (tmp_path / "out/elevater.md").read_text()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--suite", "elevater", "--data", "cifar10"], "data: a suite is shot-transfer on data sets of its own"),
        (["--suite", "elevater", "--protocols", "knn"], "protocols: a suite is shot-transfer"),
        (["--suite", "elevater", "--data.split", "test"], "a suite takes --data.root and --data.download alone"),
        (["--against", "a", "--data", "cifar10"], "against: is for --suite"),
        (["--suite", "elevater", "--data.root", "nowhere"], "none of the 20 sets of elevater is there"),
    ],
)
def test_what_does_not_go_with_a_suite_is_one_line(
    flags: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "patchnet", *flags, "--no-cache"]) == 2
    assert message in capsys.readouterr().err
