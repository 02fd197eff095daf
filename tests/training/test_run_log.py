from __future__ import annotations

import contextlib
import errno
import io
import json
import math
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from manyview.core.atomic import DiskFull
from manyview.training.run_log import RunLog
from tests import tiny
from tests.patience import PATIENCE

ODD = "[red]cats[/red] [/] [link=x] :smile: \udcff é \x1b[2J\nnext.png"
SPELT = r"[red]cats[/red] [/] [link=x] :smile: \xff é \x1b[2J next.png"


def lines(folder: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def plain(folder: Path, **settings: Any) -> RunLog:
    return RunLog(folder, **{"steps": 100, **settings})


def shown(terminal: int) -> str:
    """What a terminal has shown, to its end: one read may return less than was written."""
    parts = []
    with os.fdopen(terminal, "rb", buffering=0) as screen, contextlib.suppress(OSError):  # EIO: the writer is gone
        while part := screen.read(100_000):
            parts.append(part)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(parts).decode())


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_each_step_is_one_line_of_json_that_is_there_at_once(tmp_path: Path) -> None:
    log = plain(tmp_path / "new" / "run")
    log.write(1, {"loss": 4.5, "images": 64, "health": "good"}, epoch=0, seconds=1.5)
    log.write(2, {"loss": np.float32(0.5), "n": np.int64(3), "on": True})
    assert lines(tmp_path / "new" / "run") == [
        {"step": 1, "epoch": 0, "seconds": 1.5, "loss": 4.5, "images": 64, "health": "good"},
        {"step": 2, "loss": 0.5, "n": 3, "on": True},
    ]
    log.close()
    log.close()


def test_what_is_not_finite_leaves_the_line_valid(tmp_path: Path) -> None:
    with plain(tmp_path) as log:
        log.write(1, {"a": math.nan, "b": -math.inf, "c": 1.0, "d": "nan"})
    assert lines(tmp_path) == [
        {"step": 1, "a": None, "b": None, "c": 1.0, "d": "nan", "not_finite": {"a": "nan", "b": "-inf"}}
    ]


def test_a_resumed_run_tells_nothing_twice(tmp_path: Path) -> None:
    loggers = ("tensorboard", "csv")
    with plain(tmp_path, loggers=loggers) as log:
        for step in range(6):
            log.write(step, {"loss": float(step)})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')
    with plain(tmp_path, loggers=loggers, start=3) as log:
        for step in range(4, 8):
            log.write(step, {"loss": 10.0 * step})
    expected = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0), (7, 70.0)]
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == expected
    assert (tmp_path / "metrics.csv").read_text().splitlines() == [
        "step,name,value",
        *(f"{step},loss,{loss}" for step, loss in expected),
    ]
    assert curve(tmp_path, "loss") == expected


def test_a_run_that_starts_anew_tells_step_0_once(tmp_path: Path) -> None:
    for _ in range(2):
        with plain(tmp_path, loggers=("csv", "tensorboard")) as log:
            log.write(0, {"loss": 1.0})
    assert len(lines(tmp_path)) == 1
    assert (tmp_path / "metrics.csv").read_text() == "step,name,value\n0,loss,1.0\n"
    assert curve(tmp_path, "loss") == [(0, 1.0)]


def test_files_that_stay_as_they_are_are_not_written_again(tmp_path: Path) -> None:
    with plain(tmp_path) as log:
        log.write(1, {"loss": 1.0})
    before = (tmp_path / "metrics.jsonl").stat()
    plain(tmp_path, start=1).close()
    assert (tmp_path / "metrics.jsonl").stat().st_ino == before.st_ino


def test_curves_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    log = plain(tmp_path, loggers=("tensorboard",))
    log.write(1, {"loss": 2.0, "nan": math.nan, "word": "text"})
    assert curve(tmp_path, "loss") == [(1, 2.0)]
    log.close()


def test_names_and_texts_with_commas_stay_in_their_column(tmp_path: Path) -> None:
    with plain(tmp_path, loggers=("csv",)) as log:
        log.write(1, {'a,"b"': "x,\ny", "nan": math.nan})
        log.write(2, {"later": 1})
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1:] == ['1,"a,""b""","x, y"', "1,nan,nan", "2,later,1"]


def test_an_unknown_logger_is_told_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"loggers: there is none named 'tensorbord'; did you mean 'tensorboard'\?"):
        plain(tmp_path / "run", loggers=("tensorbord",))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "module"), [("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")])
def test_a_logger_that_is_not_installed_says_how(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=f"loggers: {name} is not installed; pip install {name}, or leave it out"):
        plain(tmp_path, loggers=(name,))


def test_wandb_takes_up_the_same_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inits: list[dict[str, Any]] = []
    told: list[tuple[dict[str, Any], int]] = []

    class Run:
        def log(self, values: dict[str, Any], step: int) -> None:
            told.append((values, step))

        def finish(self) -> None:
            told.append(({}, -1))

    def init(**settings: Any) -> Run:
        inits.append(settings)
        return Run()

    fake = ModuleType("wandb")
    monkeypatch.setattr(fake, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for start in (0, 1):
        with plain(tmp_path, loggers=("wandb",), start=start) as log:
            log.write(start + 1, {"loss": 1.0})
    assert inits[0]["id"] == inits[1]["id"]
    assert inits[0]["resume"] == "allow"
    assert told == [({"loss": 1.0}, 1), ({}, -1), ({"loss": 1.0}, 2), ({}, -1)]


def test_what_is_said_is_on_screen_and_in_the_log_as_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plain(tmp_path) as log:
        log.say(ODD)
        log.warn(ODD)
    screen = capsys.readouterr()
    assert screen.out == f"{SPELT}\n"
    assert screen.err == f"warning: {SPELT}\n"
    noted = (tmp_path / "train.log").read_text().splitlines()
    assert len(noted) == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d " + re.escape(SPELT), noted[0])
    assert noted[1].endswith(f" warning: {SPELT}")


def test_quiet_shows_warnings_only_and_notes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with plain(tmp_path, quiet=True) as log:
        log.say("one")
        log.show(100, "loss 1", now=True)
        log.warn("two")
    assert capsys.readouterr() == ("", "warning: two\n")
    assert len((tmp_path / "train.log").read_text().splitlines()) == 2


def test_without_a_terminal_there_is_a_line_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with plain(tmp_path, start=10) as log:
        for step in range(11, 101):
            clock[0] += 1
            log.show(step, f"epoch {step // 50}  healthy", now=step in (11, 50))
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown] == [f"{step}/100" for step in (11, 21, 31, 41, 50, 60, 70, 80, 90, 100)]
    assert shown[0] == "step 11/100  epoch 0  healthy"
    assert shown[1] == "step 21/100  epoch 0  healthy  1 min 19 s left"


def test_the_first_steps_which_take_longer_do_not_say_how_much_time_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with plain(tmp_path) as log:
        log.begin()
        for step, seconds in enumerate((50, 20, 1, 1), start=1):
            clock[0] += seconds
            log.show(step, "loss 1", now=True)
    left = [line.partition("loss 1")[2].strip() for line in capsys.readouterr().out.splitlines()]
    assert left == ["", "", "1 min 37 s left", "1 min 36 s left"]


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = plain(tmp_path)
    log.write(1, {"loss": 1.0})
    write = os.write

    def full(handle: int, content: bytes) -> int:
        if len(content) < 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[:-9])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull, match=r"metrics\.jsonl cannot be written: the disk is full, .* free; the checkpoints"):
        log.write(2, {"loss": 2.0})
    log.say("this is still on screen")
    monkeypatch.undo()
    log.close()
    assert lines(tmp_path) == [{"step": 1, "loss": 1.0}]


def test_loggers_are_imported_when_asked_for_and_a_full_disk_under_them_is_told(tmp_path: Path) -> None:
    """In a process of its own, with a real limit on the length of a file."""
    program = """
import resource, signal, sys
from pathlib import Path
from manyview.core.atomic import DiskFull
from manyview.training.run_log import RunLog
assert not {"tensorboard", "wandb"} & set(sys.modules)
log = RunLog(Path(sys.argv[1]), steps=9, loggers=("tensorboard",))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
try:
    with log:
        for step in range(9000):
            log.write(step, {"loss": 0.5})
except DiskFull as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.count("\n") == 1, done
    assert done.stdout.startswith(f"{tmp_path} cannot be written: files may not grow")
    assert (tmp_path / "metrics.jsonl").read_text().endswith("}\n")


@pytest.mark.parametrize("number", [errno.EIO, errno.EPIPE])
def test_a_terminal_that_is_gone_ends_nothing(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise OSError(number, os.strerror(number))

    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Gone())
    with plain(tmp_path) as log:
        log.say("hello")
        log.warn("well")
        log.show(1, "loss 2", now=True)
        log.write(1, {"loss": 2.0})
        log.sync()
    assert lines(tmp_path) == [{"step": 1, "loss": 2.0}]
    assert "hello" in (tmp_path / "train.log").read_text()


def test_the_first_failure_is_the_one_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = plain(tmp_path, loggers=("csv",))
    monkeypatch.setattr(log._loggers[0], "close", broken)
    with pytest.raises(ZeroDivisionError), log:
        _ = 1 / 0


def test_on_a_terminal_there_is_a_bar_with_what_is_said_above_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as screen, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", screen)
        with plain(tmp_path) as log:
            log.show(40, "epoch 2  loss 4.25  [bold]well", now=True)
            log.say("said [/b] [red]file[/red].png")
            log.warn("warned [x]")
            log.show(100, "epoch 5", now=True)
    seen = shown(ours)
    assert capsys.readouterr().err == "warning: warned [x]\n"
    assert "40/100" in seen
    assert "━" in seen
    assert "epoch 2  loss 4.25  [bold]well" in seen
    assert "said [/b] [red]file[/red].png" in seen
    assert "100/100" in seen


def test_a_folder_whose_name_is_no_utf_8_is_one_line_for_tensorboard_and_works_without(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run\xff")
    with pytest.raises(
        ValueError, match=r"^loggers: tensorboard writes only where names are UTF-8, and .*run\\xff is not"
    ):
        plain(folder, loggers=("tensorboard",))
    with plain(folder, loggers=("csv",)) as log:
        log.write(1, {"loss": 1.0})
    assert len(lines(folder)) == 1
    assert tiny.pretrain(tmp_path / os.fsdecode(b"whole\xff"), loggers="csv", max_steps=1) == 0


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(OSError, match="symbolic links"):
        plain(tmp_path / "run")
    assert (tmp_path / "mine.txt").read_text() == "mine"
