"""Signals that end a run: collected, so that it finishes its step and saves."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ENDING = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
TOLD = b"\nfinishing the step, then saving; Ctrl-C once more stops at once\n"


@contextmanager
def collected(*, quiet: bool) -> Iterator[list[int]]:
    """Collects SIGTERM, Ctrl-C and a terminal's end instead of dying of them; a second Ctrl-C does what it always does.

    A second SIGTERM does not: clusters repeat it while the run is being saved. What is ignored, as by nohup, stays so.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only there signals can be handled
        yield came
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def note(number: int, frame: object) -> None:
        came.append(number)
        if number == signal.SIGINT:
            signal.signal(number, before[signal.SIGINT])
            if not quiet:
                with suppress(OSError):
                    os.write(2, TOLD)  # print might be in the middle of something

    for number in before:
        signal.signal(number, note)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
