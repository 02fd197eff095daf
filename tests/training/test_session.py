"""The loop: signals, checkpoints, the last batch of an epoch, and what changes with the steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manyview.config.sections import parts_of
from manyview.methods import METHODS, BatchOutputs, Method
from manyview.training.checkpoint import Checkpoints
from tests.tiny import STEPS, pictures, pretrain
from tests.training.kills import metrics
from tests.training.whole_runs import at_step, differences_but_checkpoints, stop_with

LAST = {"drop_last": "false", "batch_size": 9, "method": "moco_v2", "memory__size": 20, "health_every": 1}


@pytest.fixture
def not_ignored() -> Iterator[None]:
    """A closed terminal ends programs, also where the tests were started by nohup, which ignores that signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("not_ignored")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_finishes_the_step_and_saves_and_the_same_command_goes_on_to_the_same_end(
    number: int,
    code: int,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 4, stop_with(number))
        assert pretrain(out, health_every=2) == code
    said = capsys.readouterr().err
    assert said == f"warning: stopped after step 4 of 12 and saved. To go on: manyview pretrain --resume {out}\n"
    assert not (out / "encoder.safetensors").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # as before
    assert pretrain(out, health_every=2) == 0
    assert "going on after step 4 of 12" in capsys.readouterr().out
    assert differences_but_checkpoints(whole, out) == []


def test_a_checkpoint_that_is_due_by_the_clock_is_saved_before_the_next_step_and_changes_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []
    save = Checkpoints.save

    def noted(self: Checkpoints, *given: Any, **more: Any) -> Path:
        path = save(self, *given, **more)
        saved.append(path.stem)
        return path

    monkeypatch.setattr(Checkpoints, "save", noted)
    assert pretrain(tmp_path / "run", health_every=2, checkpoint_minutes=0) == 0
    assert list(dict.fromkeys(saved)) == [f"step-{step:09d}" for step in range(STEPS + 1)]
    assert differences_but_checkpoints(whole, tmp_path / "run") == []


def test_who_presses_ctrl_c_is_told_at_once_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 2, stop_with(signal.SIGINT))
    assert pretrain(tmp_path) == 130
    told = "finishing the step, then saving; Ctrl-C once more stops at once\n"
    assert capfd.readouterr().err.index(told) < len(f"\n{told}")  # before anything else


def test_a_signal_that_is_repeated_while_the_run_is_saved_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def died(*_: object) -> None:
        raise AssertionError("of the second signal")

    def twice() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, died)
    try:
        at_step(monkeypatch, 4, twice)
        assert pretrain(tmp_path) == 143
        assert signal.getsignal(signal.SIGTERM) is died
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "checkpoints" / "step-000000004.pt").exists()


def test_with_workers_and_an_encoder_that_draws_a_stop_within_an_epoch_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "data": pictures(tmp_path / "data", 32, sides=(32, 40)),  # of different sizes: read by workers
        "encoder": "timm/test_convnext2",
        "encoder__options": "{drop_path_rate: 0.5}",
        "workers": 1,
        "health_every": 1,
    }
    assert pretrain(tmp_path / "whole", **settings) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path / "run", **settings) == 143
    assert pretrain(tmp_path / "run", **settings) == 0
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "run")
    ends = [tmp_path / out / "encoder.safetensors" for out in ("whole", "run")]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_the_momentum_rises_over_all_epochs_also_in_a_run_that_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, totals = Method.update, set()

    def noted(self: Method, batch: BatchOutputs, step: int, total: int) -> None:
        totals.add(total)
        update(self, batch, step, total)

    monkeypatch.setattr(Method, "update", noted)
    assert pretrain(tmp_path, method="moco_v2", memory__size=40, max_steps=3, evaluate_every=0) == 0
    assert totals == {STEPS}


def test_steps_lower_the_rate_where_they_are_set(tmp_path: Path) -> None:
    assert pretrain(tmp_path, schedule__name="steps", schedule__milestones="1", schedule__warmup=0, health_every=1) == 0
    rates = [line["lr"] for line in metrics(tmp_path) if "lr" in line]
    assert rates[:6] == [0.02] * 6
    assert rates[6:] == pytest.approx([0.002] * 6)


def test_with_its_last_batch_an_epoch_has_a_step_more_and_every_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    update = Method.update

    def noted(self: Method, batch: BatchOutputs, *more: Any) -> None:
        seen.append(len(batch.ids))
        update(self, batch, *more)

    monkeypatch.setattr(Method, "update", noted)
    assert pretrain(tmp_path, **LAST) == 0
    assert seen == [9, 9, 9, 9, 9, 4] * 2  # of 49 training images; the queue of 20 is no multiple of it
    assert [line["epoch"] for line in metrics(tmp_path) if "lr" in line] == [1] * 6 + [2] * 6
    assert metrics(tmp_path)[-1]["step"] == 12


def test_a_run_that_stops_before_and_after_a_last_batch_ends_to_the_bit_as_undisturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pretrain(tmp_path / "whole", **LAST) == 0
    for step in (5, 6, 7):
        with monkeypatch.context() as patch:
            at_step(patch, step, stop_with(signal.SIGTERM))
            assert pretrain(tmp_path / f"{step}", **LAST) == 143
        assert pretrain(tmp_path / f"{step}", **LAST) == 0
        assert differences_but_checkpoints(tmp_path / "whole", tmp_path / f"{step}") == []


def test_a_last_batch_of_a_single_image_is_left_out_and_that_is_said(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """49 images in batches of 8."""
    assert pretrain(tmp_path, health_every=2, drop_last="false") == 0
    assert "an epoch leaves out its last image, another one every time: alone it contrasts" in capsys.readouterr().err
    encoders = [(path / "encoder.safetensors").read_bytes() for path in (whole, tmp_path)]
    assert encoders[0] == encoders[1]


def test_fewer_images_than_a_batch_are_one_batch_where_the_last_one_counts(tmp_path: Path) -> None:
    data = pictures(tmp_path / "photos", 9)
    assert pretrain(tmp_path / "run", data=data, batch_size=16, drop_last="false") == 0
    assert metrics(tmp_path / "run")[-1]["step"] == 2


@pytest.mark.parametrize(
    ("method", "settings"),
    [*((name, {}) for name in METHODS), *((name, {"micro_batch": 4}) for name in ("cacr", "jcl", "cmc", "pirl"))],
)
def test_every_method_trains_on_a_last_batch_that_is_not_full(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    parts = parts_of(METHODS[method])
    sizes = {"memory": {"size": 20}, "prototypes": {"count": 16}}
    if "predictor" not in parts:  # whose vectors would have to be as long
        sizes["head"] = {"hidden": 32, "dim_out": 32}
    small = {
        f"{part}__{key}": size
        for part, keys in sizes.items()
        for key, size in keys.items()
        if part in parts and key in parts[part].keywords
    }
    given = {"batch_size": 9, "drop_last": "false", "epochs": 1, **small, **settings}
    assert pretrain(tmp_path, "--quiet", method=method, **given) == 0
    assert metrics(tmp_path)[-1]["step"] == 6


def test_a_last_batch_that_does_not_fall_into_the_groups_of_batch_norm_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"method": "moco_v2", "memory__size": 16, "method__bn_splits": 3, "batch_size": 9}
    assert pretrain(tmp_path / "run", drop_last="false", **settings) == 2
    said = "the 4 images of an epoch's last batch do not fall into 3 equal groups; give --drop-last true, or another"
    assert capsys.readouterr().err == f"manyview pretrain: method.bn_splits: {said} --batch-size\n"
    assert pretrain(tmp_path / "run", **settings) == 0
