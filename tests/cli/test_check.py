"""`manyview check`: what it counts, prints and returns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyview.cli import main as cli
from manyview.cli.main import run
from manyview.core.errors import UserError
from manyview.data.decoded import default_limit
from tests.data import fakes
from tests.data.awful import picture


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run("check", list(arguments))
    return capsys.readouterr().out


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two splits; cat 2 is cat 1 again, and the test cat too."""
    for number, name in enumerate(("train/cat/1.png", "train/dog/1.png", "test/dog/1.png")):
        fakes.draw(tmp_path / name, seed=number)
    (tmp_path / "test/cat").mkdir()
    for copy in ("train/cat/2.png", "test/cat/1.png"):
        shutil.copy(tmp_path / "train/cat/1.png", tmp_path / copy)
    return tmp_path


def test_the_text_says_it_all(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "notes.txt").touch()
    (pets / "train" / "cat" / "notes.txt").touch()
    text = report(capsys, str(pets))
    for part in (
        "every image decoded",
        "5: train 3, test 2",
        "2 classes",
        "all 5 x 4; 5 are less than 32 px",
        "RGB 5",
        "PNG 5",
        "decoded, which fits into",
        "unreadable  none",
        "2 more than needed, in 1 groups; 1 in more than one split",
        ".txt 1",
        "cat 2, dog 1",
        "train/cat/1.png, train/cat/2.png, test/cat/1.png",
    ):
        assert part in text, part


def test_one_split_can_be_asked_for(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(report(capsys, str(pets), "--split", "test", "--json"))["splits"] == {"test": 2}


def test_a_split_without_images_is_told(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "val").mkdir()
    text = report(capsys, str(pets))
    assert "no split    val: data: no images below" in text


def test_json_holds_every_field(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(report(capsys, str(pets), "--json"))
    assert told["samples"] == 5
    assert told["fits_in_memory"] is True
    assert told["unreadable_share"] == 0
    assert told["labels"]["train"] == {"cat": 2, "dog": 1}


def test_names_are_escaped_in_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture().save(tmp_path / "fine.png")
    (tmp_path / "red\x1b[31m\n.png").touch()
    assert r"red\x1b[31m\n.png: the file is empty" in report(capsys, str(tmp_path))
    assert json.loads(report(capsys, str(tmp_path), "--json"))["unreadable"][0][0] == r"red\x1b[31m\n.png"


def test_long_lists_are_cut_in_the_text_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(25):
        (tmp_path / f"{number:02}.png").touch()
    assert "and 5 more; --json lists all" in report(capsys, str(tmp_path))
    assert len(json.loads(report(capsys, str(tmp_path), "--json"))["unreadable"]) == 25


@pytest.mark.parametrize(("share", "code"), [("0.5", 0), ("0.49", 1), ("1", 0), ("0", 1)])
def test_too_many_unreadable_files_are_exit_code_1(
    tmp_path: Path, share: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    picture().save(tmp_path / "a.png")
    (tmp_path / "b.png").touch()
    assert run("check", [str(tmp_path), "--max-unreadable", share]) == code
    assert ("50.0% of the samples cannot be read" in capsys.readouterr().err) == bool(code)


def test_labels_can_be_switched_off(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "labels      none" in report(capsys, str(pets), "--labels", "no")


def test_named_sets_are_looked_at_in_all_their_splits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes.trust_checksums(monkeypatch)
    fakes.mnist(tmp_path)
    fakes.food101(tmp_path)
    assert json.loads(report(capsys, "mnist", "--root", str(tmp_path), "--json"))["splits"] == {"train": 2, "test": 2}
    assert "4: train 2, test 2" in report(capsys, "food101", "--root", str(tmp_path))
    (tmp_path / "food-101/meta/test.json").unlink()
    text = report(capsys, "food101", "--root", str(tmp_path))
    assert "no split    test: food101: not found" in text


def test_what_cannot_be_opened_raises_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        run("check", [str(tmp_path / "nothing")])
    with pytest.raises(ValueError, match="no images below"):
        run("check", [str(tmp_path)])
    with pytest.raises(ValueError, match="max_unreadable: expected a share from 0 to 1, got 5"):
        run("check", [str(tmp_path), "--max-unreadable", "5"])


def test_missing_modalities_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rgb/a", "rgb/b", "depth/a"):
        fakes.draw(tmp_path / f"{name}.png")
    assert "rgb 2, depth 1 (1 without)" in report(capsys, str(tmp_path))


def test_modalities_that_are_taken_for_classes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("depth/a", "thermal/a"):
        fakes.draw(tmp_path / f"{name}.png")
    assert run("check", [str(tmp_path)]) == 0
    assert "warning: the folders depth, thermal are taken for classes" in (said := capsys.readouterr().err)
    assert "; --modalities depth,thermal takes them" in said
    assert run("check", [str(tmp_path), "--modalities", "depth,thermal"]) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_modality_whose_files_differ_is_unreadable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rgb/a", "rgb/b", "rgb/c", "depth/a", "depth/b", "depth/c"):
        fakes.draw(tmp_path / f"{name}.png")
    picture().convert("L").save(tmp_path / "rgb" / "b.png")
    np.save(tmp_path / "depth" / "c.npy", np.zeros((4, 5), np.float32))
    (tmp_path / "depth" / "c.png").unlink()
    picture().convert("I;16").save(tmp_path / "depth" / "b.png")
    told = json.loads(report(capsys, str(tmp_path), "--json"))["unreadable"]
    assert [name for name, _ in told] == ["a"]
    assert told[0][1].startswith("depth: 3 channels of uint8, but others, such as 'b.png', have 1 of float32")


def test_a_number_of_threads_that_cannot_be_is_told(pets: Path) -> None:
    with pytest.raises(ValueError, match="threads: expected at least 0, got -1"):
        run("check", [str(pets), "--threads", "-1"])


def test_the_memory_is_what_the_loader_would_use(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(report(capsys, str(pets), "--json"))["memory"] == default_limit()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "data: is needed; give DATA"),
        (["scenes", "--threads", "abc"], "threads: expected a whole number, got 'abc'"),
        (
            ["scenes", "--labels", "maybe"],
            "labels: 'maybe' is for files of your own: scenes has labels already",
        ),
        (["scenes", "--quick"], "--quick: there is no such flag; --help shows all"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_to_do_is_said_as_flags_and_for_python(pets: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"give --data\.download \(--download of .*; download=True in Python\)"):
        run("check", ["cifar10", "--root", str(tmp_path)])
    with pytest.raises(ValueError, match=r"has test, train; give one of those, or leave the split out$"):
        run("check", [str(pets), "--split", "holdout"])
    with pytest.raises(ValueError, match=r"is not divided into splits; leave the split out$"):
        run("check", [str(pets / "train"), "--split", "test"])
    fakes.draw(pets / "train" / "stray.png", seed=9)
    with pytest.raises(ValueError, match=r"or switch labels off \(--labels no, --data.labels false; False in Python\)"):
        run("check", [str(pets / "train"), "--labels", "yes"])
