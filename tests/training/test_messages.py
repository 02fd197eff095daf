"""What a run says of itself."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.tiny import noise, pictures, pretrain
from tests.training.kills import metrics
from tests.training.whole_runs import at_step, stop_with


@pytest.mark.parametrize(
    ("settings", "leaks"),
    [
        ({"memory__size": 16}, True),
        ({"memory__size": 16, "method__bn_splits": 2}, False),
        ({"memory__name": "batch"}, False),
        ({"memory__name": "batch", "micro_batch": 4}, True),
        ({"memory__name": "batch", "micro_batch": 4, "method__bn_splits": 2}, False),
    ],
)
def test_keys_that_share_statistics_with_their_queries_are_told(
    settings: dict[str, Any], leaks: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, method="moco_v2", max_steps=1, **settings) == 0
    assert ("batch norm sees a key among the same images as its query" in capsys.readouterr().err) == leaks


def test_without_labels_there_is_no_knn_and_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "data", 32)) == 0
    assert "32 images of" in (said := capsys.readouterr().out)
    assert "no labels to score with: no kNN" in said
    assert all("knn" not in line for line in metrics(tmp_path / "run"))


def test_plain_lines_are_one_an_epoch_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("manyview.core.progress.LINE_SECONDS", PATIENCE)  # however long it takes here
    assert pretrain(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines))
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1/12", "6/12", "12/12"]
    told = "its folders are the classes, --data.labels false trains on all"
    assert lines[0] == f"dcl on 49 images of {noise()}, scored on 5 held-out images; {told}"
    assert lines[-1] == f"encoder {tmp_path / 'encoder.safetensors'}"


def test_it_says_what_is_scored_on_and_why_not_the_test_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "test"):
        pictures(tmp_path / "data" / split, 40, classes=2)
    assert pretrain(tmp_path / "one", data=tmp_path / "data", max_steps=1) == 0
    said = capsys.readouterr()
    assert "dcl on 40 images of " in said.out
    assert ", scored on 32 images of its test split\n" in said.out  # of 40, as --knn-queries says
    for number, folder in enumerate(sorted((tmp_path / "data" / "test").iterdir())):
        folder.rename(folder.with_name(f"other{number}"))
    assert pretrain(tmp_path / "two", data=tmp_path / "data", max_steps=1) == 0
    said = capsys.readouterr()
    assert ", scored on 4 held-out images; its folders are the classes" in said.out
    assert said.err == "warning: the test split is not scored on: it has other classes than the training images\n"


def test_quiet_prints_nothing_but_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 2, stop_with(signal.SIGTERM))
    assert pretrain(tmp_path, "--quiet") == 143
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: stopped after step 2")


def test_it_says_what_somebody_may_not_have_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pictures(tmp_path / "photos", 60)
    (folder / "0.png").write_bytes(b"no picture")
    assert pretrain(tmp_path / "run", data=folder, method="moco_v2", epochs=1, max_unreadable=0.1) == 0
    said = capsys.readouterr().err
    assert "the queue of 65,536 keys is larger than the data" in said
    assert "1 of 60 images cannot be read, others stand in for them: 0.png" in said
    assert "1 of 60 images cannot be read" in (tmp_path / "run" / "train.log").read_text()


def test_it_says_which_of_several_modalities_is_trained_on_and_that_a_batch_is_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for modality in ("rgb", "thermal"):
        pictures(tmp_path / "both" / modality, 12)
    assert pretrain(tmp_path / "run", data=tmp_path / "both", epochs=1, batch_size=4) == 0
    said = capsys.readouterr().err
    assert "of the modalities rgb, thermal only rgb is trained on" in said
    assert "a batch of 4 is small: each image has 3 others" in said
