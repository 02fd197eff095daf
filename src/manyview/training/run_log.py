"""Logs a run: metrics.jsonl, train.log and curves on disk, a progress bar on screen."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from manyview.core.atomic import DiskFull, atomic_write, naming_full_disk
from manyview.core.errors import UserError, hint
from manyview.core.progress import ProgressBar, print_line
from manyview.core.text import one_line, printable

UNTIMED = 2  # first steps, which allocate memory and plan: how long they take says nothing of the others

Value = float | int | str


class RunLog:
    """Logs a run of `steps` steps that is begun or resumed after step `start`.

    metrics.jsonl  a JSON line for each `write`: {"step": 20, "epoch": 1, "loss": 4.2}. A number that is not finite is
                   null, and named in the line: {"step": 20, "loss": null, "not_finite": {"loss": "nan"}}
    train.log      a line for each `say` and `warn`, with the date
    loggers        names in LOGGERS, which log all metrics too

    Lines of steps after `start` that are already there are removed, so that nothing is logged twice; all of them where
    start is 0.

    >>> with RunLog(folder, steps=1000) as log:
    ...     log.say("512 images in shapes")
    ...     log.write(20, {"loss": 4.2}, epoch=1)
    ...     log.show(20, "epoch 1  loss 4.2")
    """

    def __init__(
        self, folder: Path, *, steps: int, start: int = 0, loggers: Sequence[str] = (), quiet: bool = False
    ) -> None:
        makers = [logger(name) for name in dict.fromkeys(loggers)]
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        with naming_full_disk(self.folder, _remedy):
            last = start if start > 0 else -1
            _cut(self.folder / "metrics.jsonl", lambda line: _step_of(line) <= last)
            self._metrics = _Lines(self.folder / "metrics.jsonl")
            self._text = _Lines(self.folder / "train.log")
            self._loggers = [make(self.folder, last) for make in makers]
        self._errors = sys.stderr  # the bar puts something else in its place
        self._start = start
        self._bar = None if quiet else ProgressBar(steps, "step", start=start, file=sys.stdout, transient=False)

    def begin(self) -> None:
        """Starts the clock of the steps, by which the time left is estimated."""
        if self._bar is not None:
            self._bar.restart_clock(self._start)

    def say(self, text: str) -> None:
        """Writes one line to train.log and, unless quiet, to the screen."""
        self._note(text)
        if self._bar is not None:
            self._bar.say(text)

    def warn(self, text: str) -> None:
        """Writes one line to train.log and always to the screen."""
        self._note(f"warning: {text}")
        if self._bar is not None and self._bar.is_drawn and self._errors.isatty():
            self._bar.say(f"warning: {text}")
        else:
            print_line(f"warning: {text}", self._errors)

    def write(
        self, step: int, values: Mapping[str, Value], *, epoch: int | None = None, seconds: float | None = None
    ) -> None:
        """Writes the metrics of a step to metrics.jsonl, at once, and to the loggers.

        seconds: of the run so far, over all its sessions.
        """
        known = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        odd = {name: str(each) for name, each in known.items() if not isinstance(each, str) and not math.isfinite(each)}
        head = {"step": step, "epoch": epoch, "seconds": seconds}
        assert not known.keys() & {*head, "not_finite"}  # which are names of the line itself
        line: dict[str, Any] = {name: value for name, value in head.items() if value is not None}
        line |= {name: None if name in odd else value for name, value in known.items()}
        line |= {"not_finite": odd} if odd else {}
        with naming_full_disk(self.folder / "metrics.jsonl", _remedy):
            self._metrics.append(json.dumps(line, allow_nan=False))
        with naming_full_disk(self.folder, _remedy):
            for logger in self._loggers:
                logger.write(step, known)

    def show(self, step: int, facts: str | Sequence[str], *, spare: Sequence[str] = (), now: bool = False) -> None:
        """Shows the progress bar; without a terminal a line every ten seconds, or `now`.

        spare  those of the facts that a narrow terminal leaves out, the first of them first
        """
        if self._bar is not None:
            if step <= self._start + UNTIMED:
                self._bar.restart_clock(step)
            self._bar.show(step, facts, spare=spare, now=now)

    def sync(self) -> None:
        """Makes what was written so far survive a power failure; to be called before a checkpoint is complete."""
        with naming_full_disk(self.folder / "metrics.jsonl", _remedy):
            self._metrics.sync()

    def close(self) -> None:
        """Ends the progress bar, and writes what loggers still hold. A second call does nothing."""
        if self._bar is not None:
            self._bar.close()
        loggers, self._loggers = self._loggers, []
        with naming_full_disk(self.folder, _remedy):
            for logger in loggers:
                logger.close()
            self._metrics.close()
            self._text.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self._note(f"ended: {error}")
        try:
            self.close()
        except (OSError, DiskFull):
            if error is None:  # else what went wrong first is what to tell
                raise

    def _note(self, text: str) -> None:
        with suppress(DiskFull), naming_full_disk(self.folder / "train.log", _remedy):  # it still is on the screen
            self._text.append(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {one_line(text)}")


class Logger(Protocol):
    """Receives the metrics of each step as they are, NaN included."""

    def write(self, step: int, values: Mapping[str, Value]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Writes event files in tensorboard/, with a curve for each number; texts are left out."""

    def __init__(self, folder: Path, last: int) -> None:
        tensorboard = _package("torch.utils.tensorboard", "tensorboard")
        if any(0xDC80 <= ord(character) <= 0xDCFF for character in str(folder)):  # bytes that Python could not read
            named = f"tensorboard writes only where names are UTF-8, and {printable(str(folder))} is not"
            raise UserError("loggers", f"{named}; give another --out, or --loggers csv")
        self._writer = tensorboard.SummaryWriter(str(folder / "tensorboard"), purge_step=last + 1)

    def write(self, step: int, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            if not isinstance(value, str):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()  # a killed run would lose what waits, though its checkpoint says it is done

    def close(self) -> None:
        self._writer.close()


class Csv:
    """Writes metrics.csv with a line "step,name,value" for each value, since names may appear at any time."""

    def __init__(self, folder: Path, last: int) -> None:
        path = folder / "metrics.csv"
        _cut(path, lambda line: line == "step,name,value" or _leading(line) <= last)
        self._lines = _Lines(path)
        if path.stat().st_size == 0:
            self._lines.append("step,name,value")

    def write(self, step: int, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            self._lines.append(f"{step},{_cell(name)},{_cell(str(value))}")

    def close(self) -> None:
        self._lines.close()


class WeightsAndBiases:
    """Logs a run of wandb, the same one again after a resume; wandb itself ignores steps that it already has."""

    def __init__(self, folder: Path, last: int) -> None:
        wandb = _package("wandb", "wandb")
        name = folder / "wandb-id.txt"
        if not name.exists():
            with atomic_write(name) as draft:
                draft.write_text(uuid.uuid4().hex[:12])
        self._run = wandb.init(
            project="manyview", name=folder.resolve().name, dir=str(folder), id=name.read_text(), resume="allow"
        )

    def write(self, step: int, values: Mapping[str, Value]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


LOGGERS: dict[str, Callable[[Path, int], Logger]] = {"tensorboard": TensorBoard, "csv": Csv, "wandb": WeightsAndBiases}


def logger(name: str) -> Callable[[Path, int], Logger]:
    """Returns the function that makes the logger of that name."""
    if name not in LOGGERS:
        raise UserError("loggers", f"there is none named {name!r}; {hint(name, LOGGERS)}")
    return LOGGERS[name]


def _package(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UserError("loggers", f"{name} is not installed; pip install {name}, or leave it out") from None


class _Lines:
    """A text file that grows by whole lines, each of them written at once."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)

    def append(self, line: str) -> None:
        rest = f"{line}\n".encode(errors="backslashreplace")
        before = os.fstat(self._handle).st_size
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError:
            os.ftruncate(self._handle, before)
            raise

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def _cut(path: Path, stays: Callable[[str], bool]) -> None:
    """Removes the lines that are not to stay, and one that is half written."""
    if not path.exists():
        return
    before = path.read_bytes()
    lines = before.decode(errors="replace").split("\n")[:-1]  # what is after the last line break is half a line
    after = "".join(f"{line}\n" for line in lines if stays(line)).encode()
    if after != before:
        with atomic_write(path) as draft:
            draft.write_bytes(after)


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _leading(line: str) -> float:
    number = line.partition(",")[0]
    return int(number) if number.isdecimal() else math.inf


def _cell(text: str) -> str:
    text = one_line(text)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


def _remedy() -> str:
    return "the checkpoints are untouched; free some space, and the same command goes on from the last"
