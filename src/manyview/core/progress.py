"""How far long work is: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from manyview.core.text import duration, one_line

LINE_SECONDS = 10.0  # between plain lines
BAR_SECONDS = 0.1  # between two drawings of a bar
BAR_WIDTH, MARGIN = 20, 3  # columns of a terminal: the bar, and what stands between it and its neighbours
LOST = suppress(OSError)  # who closes a window, ends `| tee` or fills a disk does not want the work to end unsaved


class ProgressBar:
    """Shows `embedding 120/400  812 a second  20 s left`, as a bar on a terminal and as plain lines elsewhere.

    total, start  how many steps there are, and how many were done before
    text          what is being done
    file          where to show it; stderr by default, because results go to stdout
    lines         whether to print plain lines where there is no terminal
    transient     whether the bar disappears at the end

    There is no thread: one that prints while a worker forks would leave it a held lock. A terminal has room for one
    bar, so a second one at the same time is silent.
    """

    _drawn: ClassVar[ProgressBar | None] = None

    def __init__(
        self,
        total: int,
        text: str,
        *,
        start: int = 0,
        file: TextIO | None = None,
        lines: bool = True,
        transient: bool = True,
    ) -> None:
        self.total, self.text, self.start = total, text, start
        self._file = sys.stderr if file is None else file
        self._column = BarColumn(BAR_WIDTH)
        self.restart_clock(start)
        self._bar = self._draw(transient)
        self._lines = lines and self._bar is None
        self._last = self._began

    def restart_clock(self, done: int) -> None:
        """Measures the speed from now on, when `done` steps are: what came before is no guide to the time left."""
        self.done = self._untimed = done
        self._began = time.monotonic()

    @property
    def is_drawn(self) -> bool:
        """Whether there is a bar on the screen."""
        return self._bar is not None

    def advance(self, steps: int = 1) -> None:
        """Notes that so many more steps are done."""
        self.show(self.done + steps)

    def show(self, done: int, facts: str | Sequence[str] = (), *, spare: Sequence[str] = (), now: bool = False) -> None:
        """Notes that `done` steps are done, and shows it with some facts if it is time to, or `now`.

        spare  those of the facts that a narrow terminal leaves out, the first of them first
        """
        self.done = done
        pause = LINE_SECONDS if self._bar is None else BAR_SECONDS
        if not (now or time.monotonic() - self._last >= pause):
            return
        self._last = time.monotonic()
        told, left = [facts] if isinstance(facts, str) else list(facts), self._left()
        told = [each for each in told if each] or [self._speed()]
        if self._bar is not None:
            beside = self._bar.console.width - len(self._position()) - MARGIN
            self._column.bar_width = max(1, min(BAR_WIDTH, beside - len(left)))
            room = beside - self._column.bar_width
            with LOST:
                self._bar.update(
                    self._bar.task_ids[0], completed=done, description=self._position(),
                    facts=_fitting(told, left, spare, room),
                )  # fmt: skip
                self._bar.refresh()
        elif self._lines:
            print_line(f"{self._position()}  {_joined([*told, left])}", self._file)

    def say(self, text: str) -> None:
        """Prints a line, above the bar where there is one."""
        if self._bar is None:
            print_line(text, self._file)
            return
        with LOST:
            self._bar.console.print(one_line(text), markup=False, highlight=False, emoji=False, soft_wrap=True)

    def close(self) -> None:
        """Ends the bar; a second call does nothing."""
        bar, self._bar = self._bar, None
        if bar is not None:
            ProgressBar._drawn = None
            with LOST:
                bar.stop()

    def _draw(self, transient: bool) -> Progress | None:
        console = Console(file=self._file)
        if ProgressBar._drawn is not None or not (self._file.isatty() and console.is_interactive):
            return None
        whole = Column(no_wrap=True)
        facts = TextColumn("{task.fields[facts]}", markup=False, table_column=whole)
        position = TextColumn("{task.description}", markup=False, table_column=whole)
        columns = position, self._column, facts
        bar = Progress(*columns, console=console, auto_refresh=False, transient=transient)
        bar.add_task(self._position(), total=self.total, completed=self.start, facts="")
        bar.start()
        ProgressBar._drawn = self
        return bar

    def _position(self) -> str:
        return f"{self.text} {self.done}/{self.total}"

    def _seconds_a_step(self) -> float:
        return (time.monotonic() - self._began) / max(1, self.done - self._untimed)

    def _speed(self) -> str:
        seconds = self._seconds_a_step()
        return f"{1 / seconds:,.0f} a second" if seconds and self.done > self._untimed else ""

    def _left(self) -> str:
        if not self._untimed < self.done < self.total:
            return ""
        return f"{duration(self._seconds_a_step() * (self.total - self.done))} left"


def _fitting(facts: Sequence[str], left: str, spare: Sequence[str], room: int) -> str:
    """Joins facts and the time left to at most `room` letters: spare facts go first, then the end of the others."""
    kept = list(facts)
    for each in spare:
        if len(_joined([*kept, left])) > room and each in kept:
            kept.remove(each)
    if len(_joined([*kept, left])) <= room:
        return _joined([*kept, left])
    short = _joined(kept)[: max(0, room - len(left) - 2)].rstrip()
    return _joined([short, left])


def _joined(facts: Sequence[str]) -> str:
    return "  ".join(filter(None, facts))


@contextmanager
def progress_bar(
    total: int, text: str, *, start: int = 0, shown: bool = True, lines: bool = False
) -> Iterator[Callable[..., None]]:
    """Shows a `ProgressBar` while the block runs; gives a function to call after each step, or after so many."""
    if not shown:
        yield lambda steps=1: None
        return
    bar = ProgressBar(total, text, start=start, lines=lines)
    try:
        yield bar.advance
    finally:
        bar.close()


def print_line(text: str, file: TextIO) -> None:
    """Prints one line at once, with escapes for what the file's encoding does not know."""
    encoding = file.encoding or "utf-8"
    with LOST:
        print(one_line(text).encode(encoding, "backslashreplace").decode(encoding), file=file, flush=True)
