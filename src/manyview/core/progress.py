"""A progress bar for work that takes a while; nothing where nobody sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS = 0.1  # between two pictures of it
_drawn: list[Progress] = []  # a terminal has room for one


@contextmanager
def bar(total: int, text: str, *, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Gives what is to be called after each of `total` steps, or with a number after so many; gone when it ends."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal and console.is_interactive) or _drawn:
        yield lambda steps=1: None
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn()
    # it has no thread: one that prints while a worker forks would leave it a held lock
    progress = Progress(*columns, console=console, auto_refresh=False, transient=True)
    number, last = progress.add_task(text, total=total), 0.0

    def advance(steps: int = 1) -> None:
        nonlocal last
        progress.advance(number, steps)
        if time.monotonic() - last > SECONDS:
            last = time.monotonic()
            progress.refresh()

    with progress:
        _drawn.append(progress)
        try:
            progress.refresh()
            yield advance
        finally:
            _drawn.remove(progress)
