"""Whole runs, of a second each: what they leave, how they stop and go on, what they say."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

import manyview
from manyview.cli.main import main
from manyview.config.recipes import from_yaml
from manyview.config.resolve import resolve
from manyview.training import run_data, train
from manyview.training.checkpoint import Checkpoints
from tests.tiny import STEPS, pretrain
from tests.training.kills import differences, metrics
from tests.training.whole_runs import at_step, differences_but_checkpoints, stop_with


def test_a_run_leaves_all_that_is_promised(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    promised = {"config.yaml", "metrics.jsonl", "train.log", "checkpoints", "encoder.safetensors", "tensorboard"}
    assert promised <= names
    assert [path.name for path in sorted((whole / "checkpoints").iterdir())] == [
        "step-000000006.pt",
        "step-000000012.pt",
    ]
    settings = yaml.safe_load((whole / "config.yaml").read_text())
    assert (settings["augmentation"]["name"], settings["augmentation"]["size"]) == ("custom", 32)  # all is decided
    assert settings["augmentation"]["scale"] == [0.2, 1.0]


def test_the_config_alone_runs_the_job_again(whole: Path, tmp_path: Path) -> None:
    assert main(["pretrain", "--recipe", str(whole / "config.yaml"), "--out", str(tmp_path / "again")]) == 0
    assert differences(whole, tmp_path / "again") == []


def test_what_is_kept_of_a_run_may_change_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 4, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path) == 143
    resumed = ["pretrain", "--resume", str(tmp_path)]
    assert main([*resumed, "--snapshots", "2,7", "--checkpoint-steps", "5"]) == 0
    assert "warning: snapshots: the run ends after epoch 2, before 7\n" in capsys.readouterr().err
    assert (tmp_path / "checkpoints" / "epoch-0002.pt").is_file()


def test_weights_that_a_run_began_with_are_not_needed_to_go_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first.safetensors"
    first.write_bytes((whole / "encoder.safetensors").read_bytes())
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path / "run", encoder__pretrained="first.safetensors") == 143
    assert from_yaml(tmp_path / "run/config.yaml").encoder["pretrained"] == str(first)
    first.unlink()
    assert manyview.load(tmp_path / "run").dim == 16
    assert main(["pretrain", "--resume", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(("local", "order"), [("0", ["looks", "over", "over"]), ("1", ["over", "looks", "over"])])
def test_one_process_of_a_machine_downloads_before_the_others_look(
    local: str, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    @contextmanager
    def together() -> Iterator[None]:
        yield
        found.append("over")

    monkeypatch.setenv("LOCAL_RANK", local)

    images = SimpleNamespace(train=range(100))

    def data(*_: object) -> SimpleNamespace:
        found.append("looks")
        return images

    monkeypatch.setattr(run_data, "open_data", data)
    monkeypatch.setattr(train, "fail_together", together)
    config = resolve({}, {"data.name": "cifar10", "data.download": True})
    assert train._data(config, None) is images  # type: ignore[comparison-overlap]
    assert found == order


def test_images_that_no_longer_fit_into_memory_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path) == 143
    monkeypatch.setattr("manyview.data.decoded.default_limit", lambda: 0)
    assert pretrain(tmp_path, workers=0) == 0
    assert "warning: the images are too large for the memory, unlike before: " in capsys.readouterr().err


def test_resume_goes_on_as_well_on_another_machine(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop_with(signal.SIGTERM))
        assert pretrain(out, health_every=2) == 143
    moved = out.rename(tmp_path / "moved")
    more = ["--workers", "1", "--loggers", "csv", "--checkpoint-minutes", "1", "--device", "auto", "--quiet"]
    assert main(["pretrain", "--resume", str(moved), *more]) == 0
    assert differences_but_checkpoints(whole, moved) == []


def test_it_runs_in_a_thread_where_signals_cannot_be_handled(tmp_path: Path) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(pretrain(tmp_path / "run", max_steps=2)))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_full_disk_is_one_line_and_the_last_checkpoint_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, save = tmp_path / "run", torch.save

    def full(state: Any, file: Any) -> None:
        if state["state"]["step"] == STEPS:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(state, file)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        assert pretrain(out, health_every=2) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the disk is full" in said
    assert "step-000000006.pt is whole" in said
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-000000006.pt"]
    assert pretrain(out, health_every=2) == 0
    assert differences(whole, out) == []


def test_a_disk_that_is_full_at_the_very_end_leaves_a_run_that_can_end(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(draft: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert pretrain(tmp_path / "run", health_every=2) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "encoder.safetensors cannot be written: the disk is full" in said
    assert pretrain(tmp_path / "run", health_every=2) == 0
    assert differences(whole, tmp_path / "run") == []


def test_a_complete_run_whose_page_was_not_written_any_more_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    assert not (tmp_path / "report.html").exists()
    assert pretrain(tmp_path, max_steps=1, report="true") == 0
    assert (tmp_path / "report.html").is_file()
    assert f"report {tmp_path / 'report.html'}" in capsys.readouterr().out


@pytest.mark.parametrize("groups", [1, 2])
def test_a_run_that_goes_on_in_another_number_of_processes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], groups: int
) -> None:
    run = partial(pretrain, tmp_path, method="moco_v2", memory__size=16, method__bn_splits=groups)
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert run() == 143
    kept = Checkpoints(tmp_path / "checkpoints")
    found = kept.latest()
    assert found is not None
    assert found[0]["world"] == 1
    kept.save({**found[0], "world": 2}, 2)
    capsys.readouterr()
    assert run() == 0
    again = f"as before: torchrun --nproc-per-node 2 -m manyview pretrain --resume {tmp_path}"
    told = f", which batch norm can tell; {again}" if groups == 1 else ""  # groups are the same in any number
    assert f"warning: processes: 2 so far, 1 now{told}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        {"micro_batch": 4},
        {"micro_batch": 4, "method": "moco_v2", "memory__size": 32},
        {"precision": "bf16"},
        {"grad_clip": 0.1},
        {"optimizer__name": "lars"},
        {"optimizer__name": "adamw", "lr": 1e-3},
        {"schedule__name": "steps", "schedule__milestones": "1,2"},
        {"schedule__warmup": 1, "schedule__per": "epoch"},
        {"precision": "fp64", "max_steps": 3},
        {"precision": "bf16", "grad_checkpoint": True},
    ],
    ids=str,
)
def test_every_way_to_train_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    assert pretrain(tmp_path, **settings) == 0
    lines = [line for line in metrics(tmp_path) if "loss" in line]
    assert all(torch.isfinite(torch.tensor(line["loss"])) for line in lines)
    if "grad_clip" in settings:
        assert lines[-1]["gradient_norm"] > 0


@pytest.mark.parametrize("more", [{}, {"micro_batch": 4}, {"method": "moco_v2", "method__bn_splits": 2}], ids=str)
def test_gradient_checkpointing_leaves_the_same_encoder_and_can_be_turned_on_when_a_run_goes_on(
    more: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"memory__size": 16} if "method" in more else {}
    settings |= {"max_steps": 4, "evaluate_every": 0, **more}
    assert pretrain(tmp_path / "plain", **settings) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path / "again", **settings) == 143
    assert pretrain(tmp_path / "again", grad_checkpoint=True, **settings) == 0
    plain, again = ((tmp_path / name / "encoder.safetensors").read_bytes() for name in ("plain", "again"))
    assert again == plain


def test_an_encoder_that_has_no_blocks_is_refused_before_it_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, encoder__name="small_alexnet", encoder__options="{}", grad_checkpoint=True) == 2
    assert "grad_checkpoint: small_alexnet has no blocks that repeat; leave it out" in capsys.readouterr().err


def test_without_evaluators_nothing_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, max_steps=2, evaluators="[]") == 0
    said = capsys.readouterr().out
    assert "no score, 5 held out" in said
    assert "kNN" not in said
    assert not any("knn" in name for line in metrics(tmp_path) for name in line)


@pytest.mark.parametrize(
    ("settings", "channels"),
    [
        ({"views": "L"}, 1),
        ({"views": "depth", "data": "scenes", "data__count": 40, "data__modalities": "image,depth"}, 1),
    ],
    ids=["lightness of pictures", "depth of scenes"],
)
def test_a_method_of_one_view_trains_on_the_view_that_is_named(
    settings: dict[str, Any], channels: int, tmp_path: Path
) -> None:
    assert pretrain(tmp_path, method="simclr", health_every=1, max_steps=3, **settings) == 0
    assert manyview.load(tmp_path).options["channels"] == channels
    lines = metrics(tmp_path)
    assert len([line for line in lines if "loss" in line]) == 3
    assert len([line for line in lines if "knn" in line]) == 2  # its labels are scored with as well


LAST = {"drop_last": "false", "batch_size": 9, "method": "moco_v2", "memory__size": 20, "health_every": 1}
