"""What a run tells: metrics.jsonl, train.log and curves on disk, a progress bar on screen."""

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
from numbers import Integral, Real
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from manyview.core.atomic import DiskFull, atomic_write, naming_full_disk
from manyview.core.errors import UserError, hint
from manyview.core.progress import ProgressBar, print_line
from manyview.core.text import one_line

Value = float | int | str
OURS = ("step", "epoch", "seconds", "not_finite")  # names that a line of metrics.jsonl has itself


class RunLog:
    """Tells of a run of `steps` steps that goes on after step `start`.

    metrics.jsonl  a JSON line for each `write`: {"step": 20, "epoch": 1, "loss": 4.2}. What is no finite number is
                   null, and named in the line: {"step": 20, "loss": null, "not_finite": {"loss": "nan"}}
    train.log      a line for each `say` and `warn`, with the date
    loggers        names in LOGGERS, which are told all metrics too

    What is already there of steps after `start` is removed, so that nothing is told twice; all of it where start is 0.

    >>> with RunLog(folder, steps=1000) as log:
    ...     log.say("512 images in shapes")
    ...     log.write(20, {"loss": 4.2}, epoch=1)
    ...     log.show(20, epoch=1, loss=4.2, speed=812.0)
    """

    def __init__(
        self,
        folder: Path,
        *,
        steps: int,
        start: int = 0,
        loggers: Sequence[str] = ("tensorboard",),
        quiet: bool = False,
    ) -> None:
        makers = [logger(name) for name in dict.fromkeys(loggers)]
        self.folder, self.steps, self.start, self.quiet = Path(folder), steps, start, quiet
        self.folder.mkdir(parents=True, exist_ok=True)
        with naming_full_disk(self.folder, _remedy):
            last = start if start > 0 else -1
            _cut(self.folder / "metrics.jsonl", lambda line: _step_of(line) <= last)
            self._metrics = _Lines(self.folder / "metrics.jsonl")
            self._text = _Lines(self.folder / "train.log")
            self._loggers = [make(self.folder, last) for make in makers]
        self._facts: dict[str, str] = {}
        self._errors = sys.stderr  # the bar puts something else in its place
        self._bar = None if quiet else ProgressBar(steps, "step", start=start, file=sys.stdout, transient=False)

    def begin(self) -> None:
        """The steps begin now: what came before does not count for the time that is left."""
        if self._bar is not None:
            self._bar.restart_clock()

    def say(self, text: str) -> None:
        """One line, to train.log and, unless quiet, to the screen."""
        self._note(text)
        if self._bar is not None:
            self._bar.say(text)

    def warn(self, text: str) -> None:
        """One line, to train.log and, always, to the screen."""
        self._note(f"warning: {text}")
        if self._bar is not None and self._bar.is_drawn and self._errors.isatty():
            self._bar.say(f"warning: {text}")
        else:
            print_line(f"warning: {text}", self._errors)

    def write(
        self, step: int, values: Mapping[str, Value], *, epoch: int | None = None, seconds: float | None = None
    ) -> None:
        """The metrics of a step: to metrics.jsonl, at once, and to the loggers.

        seconds: that the run has taken so far, over all its sittings.
        """
        known = {name: _value(name, value) for name, value in values.items()}
        odd = {name: str(value) for name, value in known.items() if not _finite(value)}
        head = {"step": step, "epoch": epoch, "seconds": seconds}
        line: dict[str, Any] = {name: value for name, value in head.items() if value is not None}
        line |= {name: None if name in odd else value for name, value in known.items()}
        line |= {"not_finite": odd} if odd else {}
        with naming_full_disk(self.folder / "metrics.jsonl", _remedy):
            self._metrics.append(json.dumps(line, allow_nan=False))
        with naming_full_disk(self.folder, _remedy):
            for logger in self._loggers:
                logger.write(step, known)

    def show(
        self,
        step: int,
        *,
        epoch: int | None = None,
        loss: float | None = None,
        speed: float | None = None,
        knn: float | None = None,
        health: str | None = None,
        epoch_over: bool = False,
    ) -> None:
        """The progress bar; without a terminal a line every ten seconds and, with `epoch_over`, at an epoch's end.

        speed: images a second; knn: accuracy, 0 to 1; health: a word. What is left out stays as it was.
        """
        facts = {
            "epoch": None if epoch is None else f"epoch {epoch}",
            "loss": None if loss is None else f"loss {loss:.4g}",
            "speed": None if speed is None else f"{speed:,.0f} images/s",
            "knn": None if knn is None else f"kNN {knn:.1%}",
            "health": health,
        }
        now = not self._facts or step >= self.steps or epoch_over
        self._facts |= {name: one_line(fact) for name, fact in facts.items() if fact is not None}
        if self._bar is not None:
            self._bar.show(step, "  ".join(self._facts.values()), now=now)

    def sync(self) -> None:
        """What was written so far stays, even if the power goes: to be called before a checkpoint says it is done."""
        with naming_full_disk(self.folder / "metrics.jsonl", _remedy):
            self._metrics.sync()

    def close(self) -> None:
        """Ends the bar, and whatever loggers still hold is written. A second call does nothing."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    """Is told the metrics of each step as they are, NaN included."""

    def write(self, step: int, values: Mapping[str, Value]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in tensorboard/. Curves are of numbers: texts are left out."""

    def __init__(self, folder: Path, last: int) -> None:
        tensorboard = _package("torch.utils.tensorboard", "tensorboard")
        self._writer = tensorboard.SummaryWriter(str(folder / "tensorboard"), purge_step=last + 1)

    def write(self, step: int, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            if not isinstance(value, str):
                self._writer.add_scalar(name, value, step)
        self._writer.flush()  # a killed run would lose what waits, though its checkpoint says it is done

    def close(self) -> None:
        self._writer.close()


class Csv:
    """metrics.csv with a line "step,name,value" for each value, since names may appear at any time."""

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
    """A run of wandb, the same one again after a resume; wandb itself ignores steps that it has seen."""

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
    """What makes the logger of that name."""
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
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

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
    """Leaves only the lines that stay, and not a half-written one."""
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


def _value(name: str, value: object) -> Value:
    if name in OURS:
        raise UserError("values", f"the name {name!r} is taken; step, epoch and seconds are arguments of their own")
    if isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise UserError("values", f"expected a number or a text as {name}, got a {type(value).__name__}")


def _finite(value: Value) -> bool:
    return isinstance(value, str) or math.isfinite(value)


def _remedy() -> str:
    return (
        "the checkpoints are untouched; free some space and start the same command again, which goes on from the last"
    )
