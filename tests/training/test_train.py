"""Whole runs, of a second each: what they leave, how they stop and go on, what they say."""

from __future__ import annotations

import errno
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import manyview
from manyview.config.config import Config
from manyview.config.resolve import resolve
from manyview.config.yaml_file import from_yaml
from manyview.core import distributed
from manyview.core.lock import locked
from manyview.diagnose.health import Health
from manyview.encoders import dense_conv
from manyview.training import build, step, train
from manyview.training import messages as tell
from manyview.training.checkpoint import Checkpoints
from manyview.training.state import Progress
from tests.patience import PATIENCE
from tests.tiny import STEPS, noise, pictures, pretrain
from tests.training.kills import differences, metrics


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(out, health_every=2) == 0
    return out


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[], object]) -> None:
    """Does something when a step is over, and before anything of it is saved."""
    shown = tell.step

    def acting(log: Any, run: Any, batch_size: int) -> None:
        shown(log, run, batch_size)
        if run.step == step:
            act()

    monkeypatch.setattr(tell, "step", acting)


def stop_with(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


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
    assert (
        manyview.cli.main.main(["pretrain", "--recipe", str(whole / "config.yaml"), "--out", str(tmp_path / "again")])
        == 0
    )
    assert differences(whole, tmp_path / "again") == []


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


def test_who_presses_ctrl_c_is_told_at_once_what_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 2, stop_with(signal.SIGINT))
    assert pretrain(tmp_path) == 130
    told = "finishing the step, then saving; Ctrl-C once more stops at once\n"
    assert capfd.readouterr().err.index(told) < len(f"\n{told}")  # before anything else


def test_what_is_kept_of_a_run_may_change_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 4, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path) == 143
    resumed = ["pretrain", "--resume", str(tmp_path)]
    assert manyview.cli.main.main([*resumed, "--snapshots", "2,7", "--checkpoint-steps", "5"]) == 0
    assert "warning: snapshots: the run ends after epoch 2, before 7\n" in capsys.readouterr().err
    assert (tmp_path / "checkpoints" / "epoch-0002.pt").is_file()


@pytest.mark.parametrize(("flags", "said"), [
    (["--recipe", "demo"], "recipe: cannot be given with --resume"),
    (["--smoke"], "smoke: cannot be given with --resume"),
    (["--out", "elsewhere"], "out: elsewhere was given beside a run to go on with"),
])  # fmt: skip
def test_what_a_begun_run_would_ignore_is_refused(
    flags: list[str], said: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert manyview.cli.main.main(["pretrain", "--resume", str(whole), *flags]) == 2
    assert said in capsys.readouterr().err


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
    assert manyview.cli.main.main(["pretrain", "--resume", str(tmp_path / "run")]) == 0


def test_how_to_go_on_is_told_for_every_way_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve({}, {"data.name": "photos", "out": "my runs/a"})
    assert train.resume(config, 1) == "manyview pretrain --resume 'my runs/a'"
    assert train.resume(config, 2) == "torchrun --nproc-per-node 2 -m manyview pretrain --resume 'my runs/a'"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(distributed, "world_size", lambda: 8)
    assert train.resume(config, 8).startswith("torchrun --nnodes 2 --nproc-per-node 4 -m manyview pretrain")
    own = resolve({}, {"data.name": "(own)", "out": "a"})
    assert train.resume(own, 1) == "manyview.pretrain(data=..., resume='a'), with the same data"


def test_processes_that_torchrun_has_not_started_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert pretrain(tmp_path) == 2
    assert "WORLD_SIZE: is 2, and torchrun has not started this process" in capsys.readouterr().err


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

    def images(*_: object) -> str:
        found.append("looks")
        return "images"

    monkeypatch.setattr(build, "images", images)
    config = resolve({}, {"data.name": "cifar10", "data.download": True})
    assert str(train._images(config, None, together)) == "images"
    assert found == order


def test_images_that_no_longer_fit_into_memory_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path) == 143
    monkeypatch.setattr("manyview.data.memory.default_limit", lambda: 0)
    assert pretrain(tmp_path, workers=0) == 0
    assert "warning: the images are too large for the memory, unlike before: " in capsys.readouterr().err


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


def differences_but_checkpoints(one: Path, other: Path) -> list[str]:
    """Of two runs that ended the same but saved at other steps."""
    last = [out / "checkpoints" / f"step-{STEPS:09d}.pt" for out in (one, other)]
    for out in (one, other):
        for path in (out / "checkpoints").iterdir():
            if path not in last:
                path.rename(out / path.name)
    try:
        return differences(one, other)
    finally:
        for out in (one, other):
            for path in out.glob("step-*.pt"):
                path.rename(out / "checkpoints" / path.name)


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


def test_a_worker_that_is_killed_is_one_line_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, before = pictures(tmp_path / "data", 48, sides=(32, 40)), set(multiprocessing.active_children())
    workers: list[Any] = []

    def kill_one() -> None:
        workers.extend(set(multiprocessing.active_children()) - before)
        workers[0].kill()
        os.waitid(os.P_PID, workers[0].pid, os.WEXITED | os.WNOWAIT)  # torch says so at once, by a signal

    with monkeypatch.context() as patch:
        at_step(patch, 8, kill_one)
        assert pretrain(tmp_path / "run", "--quiet", data=folder, workers=2, epochs=4) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "a worker that reads images was killed, likely for lack of memory; the same command with --workers 1" in said
    gc.collect()  # what a process does when it ends
    for worker in workers:
        worker.join(PATIENCE)
    assert [worker.exitcode for worker in workers] == [-9, 0]
    assert pretrain(tmp_path / "run", data=folder, workers=1, epochs=4) == 0
    assert "going on after step 6 of" in capsys.readouterr().out


def test_a_full_memory_is_one_line_and_other_mistakes_keep_their_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory: you tried to")

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr(train, "_forward_backward", full)
    assert pretrain(tmp_path, "--quiet") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the memory is full" in said
    error = RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        pretrain(tmp_path, "--quiet")


def test_a_run_of_which_nothing_was_saved_says_that_it_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, max_steps=2) == 0
    assert train.ANEW not in capsys.readouterr().err
    (tmp_path / "encoder.safetensors").unlink()
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    assert manyview.cli.main.main(["pretrain", "--resume", str(tmp_path)]) == 0
    assert train.ANEW in capsys.readouterr().err


def test_resume_goes_on_as_well_on_another_machine(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop_with(signal.SIGTERM))
        assert pretrain(out, health_every=2) == 143
    moved = out.rename(tmp_path / "moved")
    more = ["--workers", "1", "--loggers", "csv", "--checkpoint-minutes", "1", "--device", "auto", "--quiet"]
    assert manyview.cli.main.main(["pretrain", "--resume", str(moved), *more]) == 0
    assert differences_but_checkpoints(whole, moved) == []


def test_from_python_an_interrupt_is_a_keyboard_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 1, stop_with(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):  # so that no `except Exception` goes on with the next run of a sweep
        manyview.pretrain(noise(), out=str(tmp_path), batch_size=8, epochs=1)


def test_it_runs_in_a_thread_where_signals_cannot_be_handled(tmp_path: Path) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(pretrain(tmp_path / "run", max_steps=2)))
    thread.start()
    thread.join()
    assert codes == [0]


def test_other_settings_are_refused_with_what_differs(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert pretrain(whole, health_every=2, lr=0.5) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "optimizer.lr: 0.02 -> 0.5" in said
    assert f"manyview pretrain --resume {whole}" in said
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_settings_may_change_as_long_as_nothing_is_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", encoder="no_such") == 2
    assert "there is no encoder 'no_such'" in capsys.readouterr().err
    assert pretrain(tmp_path / "run", max_steps=1) == 0


def test_a_complete_run_says_so_and_nothing_changes(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    assert pretrain(whole, health_every=2) == 0
    assert manyview.cli.main.main(["pretrain", "--resume", str(whole)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.startswith(f"{whole} is complete; nothing is left to do") for line in said] == [True, True]
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


def test_checkpoints_without_their_settings_are_not_taken_for_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Checkpoints(tmp_path / "run" / "checkpoints").save({"step": 3}, 3)
    assert pretrain(tmp_path / "run") == 2
    assert "holds a run without its config.yaml" in capsys.readouterr().err


def test_a_damaged_checkpoint_is_passed_over_and_the_end_is_the_same(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 8, stop_with(signal.SIGTERM))
        assert pretrain(out, health_every=2) == 143
    newest = out / "checkpoints" / "step-000000008.pt"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    capsys.readouterr()
    assert pretrain(out, health_every=2) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"warning: passed over a checkpoint: {newest}: is damaged")
    assert "going on after step 6 of 12" in said.out
    assert differences_but_checkpoints(whole, out) == []


def test_a_second_process_says_that_the_folder_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from manyview.core.lock import locked; from pathlib import Path\n" + (
        "with locked(Path(sys.argv[1])): print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        assert pretrain(tmp_path) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert f"is being trained by process {other.pid}" in said
        assert other.stdin is not None
        other.stdin.close()
    with locked(tmp_path):
        pass


def test_a_full_disk_is_one_line_and_the_last_checkpoint_goes_on(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, save = tmp_path / "run", torch.save

    def full(state: Any, file: Any) -> None:
        if state["progress"]["step"] == STEPS:
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


def test_snapshots_stay(tmp_path: Path) -> None:
    assert pretrain(tmp_path, snapshots="1,3", epochs=4, batch_size=24, checkpoint_steps=1) == 0
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["epoch-0001.pt", "epoch-0003.pt", "step-000000007.pt", "step-000000008.pt"]
    state = torch.load(tmp_path / "checkpoints" / "epoch-0001.pt", weights_only=True)
    assert state["progress"]["step"] == 2


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, lr=1e30, checkpoint_steps=1, schedule__warmup=1) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "likely the learning rate 1e+30" in said
    (evidence,) = tmp_path.glob("failed-after-step-*.pt")
    assert str(evidence) in said
    state = torch.load(evidence, weights_only=True)
    assert len(state["ids"]) == len(state["index"]) == 8
    assert state["method"]
    good = Checkpoints(tmp_path / "checkpoints").latest()
    assert good is not None
    assert all(torch.isfinite(each).all() for each in good[0]["method"].values() if each.is_floating_point())
    assert not (tmp_path / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    ("settings", "step", "cause"),
    [
        ({"precision": "fp16"}, 5, "precision: start again (another --out) with --precision bf16"),
        ({"parts": {"loss": {"temperature": 0.001}}}, 5, "temperature 0.001"),
        ({"parts": {"loss": {"temperature": 0.1}}}, 5, "learning rate 0.5"),
        ({}, 5, "learning rate 0.5: start again (another --out) with --lr 0.17"),
        ({}, 0, "data"),
    ],
)
def test_the_likely_cause_is_named(settings: dict[str, Any], step: int, cause: str) -> None:
    config = Config(**{**{each.name: {} for each in fields(Config)}, "optimizer": {"lr": 0.5}, **settings})
    run = Progress(100, 10, Health(coupled=True), step=step)
    assert f"likely the {cause}" in train._likely(config, run)


def test_other_data_than_a_run_was_begun_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = pictures(tmp_path / "data", 40), tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, 1, stop_with(signal.SIGTERM))
        assert pretrain(out, data=folder) == 143
    before = (out / "checkpoints" / "step-000000001.pt").read_bytes()
    (folder / "0.png").rename(tmp_path / "0.png")
    capsys.readouterr()
    assert pretrain(out, data=folder) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has changed: 40 images then, 39 now; give another --out, or bring the data back" in said
    assert (out / "checkpoints" / "step-000000001.pt").read_bytes() == before
    (tmp_path / "0.png").rename(folder / "0.png")
    assert pretrain(out, data=folder) == 0
    (folder / "0.png").rename(folder / "other.png")  # and so it is with a complete run
    assert pretrain(out, data=folder) == 2
    assert "40 images then, 40 others now" in capsys.readouterr().err


def test_a_complete_run_whose_page_was_not_written_any_more_gets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    assert not (tmp_path / "report.html").exists()
    assert pretrain(tmp_path, max_steps=1, report="true") == 0
    assert (tmp_path / "report.html").is_file()
    assert f"report {tmp_path / 'report.html'}" in capsys.readouterr().out


def test_double_precision_is_double_up_to_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[torch.dtype] = []
    whole_batch = step.whole_batch

    def watched(*given: Any, **more: Any) -> Any:
        stepped = whole_batch(*given, **more)
        triple = stepped.triples[0][1]
        found.extend([stepped.loss.dtype, triple.query.dtype, triple.positives.dtype])
        return stepped

    monkeypatch.setattr(train, "whole_batch", watched)
    assert pretrain(tmp_path, precision="fp64", max_steps=1) == 0
    assert set(found) == {torch.float64}


def test_in_training_convolutions_on_small_maps_are_dense_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps: list[torch.Size] = []
    dense = dense_conv._dense

    def watched(x: torch.Tensor, *given: Any) -> torch.Tensor:
        maps.append(x.shape[2:])
        return dense(x, *given)

    monkeypatch.setattr(dense_conv, "_dense", watched)
    assert pretrain(tmp_path, augmentation__size=8, max_steps=1) == 0
    assert set(maps) == {(2, 2)}  # of the second stage's second convolution


@pytest.mark.parametrize("flag", ["--recipe", "--resume"])
def test_a_flag_that_needs_a_value_says_so(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert manyview.cli.main.main(["pretrain", flag]) == 2
    assert f"{flag[2:]}: expected a value, got none; write {flag} VALUE" in capsys.readouterr().err


def test_a_complete_run_needs_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, max_steps=1) == 0
    (tmp_path / "checkpoints" / "step-000000001.pt").write_text("cut off")
    assert pretrain(tmp_path, max_steps=1) == 0
    assert "nothing is left to do" in capsys.readouterr().out


def test_a_run_that_goes_on_in_another_number_of_processes_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        at_step(patch, 2, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path) == 143
    kept = Checkpoints(tmp_path / "checkpoints")
    found = kept.latest()
    assert found is not None
    assert found[0]["world"] == 1
    kept.save({**found[0], "world": 2}, 2)
    capsys.readouterr()
    assert pretrain(tmp_path) == 0
    said = "processes: 2 so far, 1 now, which batch norm can tell; as before: torchrun --nproc-per-node 2 -m manyview "
    assert f"warning: {said}pretrain --resume {tmp_path}\n" in capsys.readouterr().err


def test_images_that_cannot_be_read_are_remembered_over_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pictures(tmp_path / "data", 48, sides=(32, 40))  # of different sizes: read as they are needed
    (folder / "3.png").write_text("no picture")
    settings = {"data": folder, "workers": 0, "health_every": 1}
    assert pretrain(tmp_path / "whole", **settings) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 10, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path / "run", **settings) == 143
    assert pretrain(tmp_path / "run", **settings) == 0
    states = [
        torch.load(tmp_path / name / "checkpoints" / "step-000000012.pt", weights_only=True)
        for name in ("whole", "run")
    ]
    assert states[0]["unreadable"]
    assert states[0]["unreadable"] == states[1]["unreadable"]
    assert states[0]["progress"]["health"] == states[1]["progress"]["health"]


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
    ],
    ids=str,
)
def test_every_way_to_train_trains(settings: dict[str, Any], tmp_path: Path) -> None:
    assert pretrain(tmp_path, **settings) == 0
    lines = [line for line in metrics(tmp_path) if "loss" in line]
    assert all(torch.isfinite(torch.tensor(line["loss"])) for line in lines)
    if "grad_clip" in settings:
        assert lines[-1]["gradient_norm"] > 0


def test_steps_lower_the_rate_where_they_are_set(tmp_path: Path) -> None:
    assert pretrain(tmp_path, schedule__name="steps", schedule__milestones="1", health_every=1) == 0
    rates = [line["lr"] for line in metrics(tmp_path) if "lr" in line]
    assert rates[:6] == [0.02] * 6
    assert rates[6:] == pytest.approx([0.002] * 6)


def test_without_labels_there_is_no_knn_and_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "data", 32)) == 0
    assert "32 images of" in (said := capsys.readouterr().out)
    assert "no labels to score with: no kNN" in said
    assert all("knn" not in line for line in metrics(tmp_path / "run"))


def test_plain_lines_are_one_an_epoch_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("manyview.training.run_log.LINE_SECONDS", PATIENCE)  # however long it takes here
    assert pretrain(tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines))
    assert [line.split()[1] for line in lines if line.startswith("step ")] == ["1/12", "6/12", "12/12"]
    told = "its folders are the classes, --data.labels false learns from all"
    assert lines[0] == f"dcl on 49 images of {noise()}, scored on 5 images kept aside; {told}"
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
    assert ", scored on 4 images kept aside; its folders are the classes" in said.out
    assert said.err == "warning: the test split is not scored on: it has other classes than the images to learn from\n"


def test_quiet_prints_nothing_but_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 2, stop_with(signal.SIGTERM))
    assert pretrain(tmp_path, "--quiet") == 143
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: stopped after step 2")


def test_loggers_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert pretrain(tmp_path / "run", loggers="csv,tensorboard", health_every=4) == 0
    told = {line["step"]: line["loss"] for line in metrics(tmp_path / "run") if "loss" in line}
    assert list(told) == [1, 4, 8, 12]
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {each.step: each.value for each in events.Scalars("loss")} == pytest.approx(told, rel=1e-6)
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()]
    assert {int(step): float(value) for step, name, value in rows[1:] if name == "loss"} == told
    assert pretrain(tmp_path / "other", loggers="wandb") == 2
    assert "wandb is not installed; pip install wandb, or leave it out" in capsys.readouterr().err


def test_nothing_of_a_cluster_is_taken_for_a_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert pretrain(tmp_path, max_steps=1) == 0


def health(out: Path) -> list[str]:
    return [line["health"] for line in metrics(out) if "health" in line]


def test_a_healthy_run_is_called_healthy(tmp_path: Path) -> None:
    assert (
        pretrain(
            tmp_path,
            data="scenes",
            data__count=64,
            method="simclr",
            epochs=20,
            health_every=5,
            batch_size=32,
            evaluate_every=0,
        )
        == 0
    )
    assert health(tmp_path)[-1] == "healthy"
    assert " healthy: similarity " in (tmp_path / "train.log").read_text()


def test_a_run_of_alignment_alone_is_called_collapsing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = {"loss": "align_uniform", "loss__uniform_weight": 0, "head": "mlp"}
    assert pretrain(tmp_path, epochs=5, health_every=3, lr=0.2, evaluate_every=0, **alone) == 0
    assert health(tmp_path)[-1] == "collapsing"
    assert ": collapsing since step " in capsys.readouterr().err
    assert "warning: step " in (tmp_path / "train.log").read_text()


def test_pictures_of_one_colour_are_called_broken_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "data", 32, flat=True), health_every=1) == 0
    assert "broken data" in health(tmp_path / "run")
    assert "of the pictures have one single colour" in capsys.readouterr().err


def test_info_nce_on_an_easy_batch_of_four_is_called_saturated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {
        "augmentation__name": "custom",
        "augmentation__scale": "1,1",
        "augmentation__jitter_p": 0,
        "augmentation__grey": 0,
        "augmentation__flip": 0,
    }
    easy = {"method": "simclr", "loss__temperature": 0.1, **same}  # both views are the same
    assert pretrain(tmp_path, batch_size=4, health_every=3, evaluate_every=0, **easy) == 0
    assert health(tmp_path)[-1] == "saturated"
    assert "with dcl, more negatives" in capsys.readouterr().err


def test_metrics_are_lines_of_json_with_what_was_measured(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert "knn" in lines[0]
    last = next(line for line in reversed(lines) if "loss" in line)
    assert {"alignment", "uniformity", "rank", "gap", "entropy", "entropy_limit", "coupling", "gradient_norm"} <= set(
        last
    )


def test_it_says_what_somebody_may_not_have_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pictures(tmp_path / "photos", 60)
    (folder / "0.png").write_bytes(b"no picture")
    assert pretrain(tmp_path / "run", data=folder, method="moco_v2", epochs=1, max_unreadable=0.1) == 0
    said = capsys.readouterr().err
    assert "the queue of 65,536 keys is larger than the data" in said
    assert "1 of 60 images cannot be read, others stand in for them: 0.png" in said
    assert "1 of 60 images cannot be read" in (tmp_path / "run" / "train.log").read_text()


def test_it_says_which_of_several_views_is_learnt_from_and_that_a_batch_is_small(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for view in ("rgb", "thermal"):
        pictures(tmp_path / "both" / view, 12)
    assert pretrain(tmp_path / "run", data=tmp_path / "both", epochs=1, batch_size=4) == 0
    said = capsys.readouterr().err
    assert "of the views rgb, thermal only rgb is learnt from" in said
    assert "a batch of 4 is small: each image has 3 others" in said
