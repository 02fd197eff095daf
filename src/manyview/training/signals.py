"""Signals that ask a run to end: it finishes its step and saves; a second one ends a run that hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ENDING = [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
STILL = 30.0  # seconds without any movement after a first signal, at least, after which a second SIGTERM ends a run
LEAVING = 10.0  # seconds that a run has to end after a second Ctrl-C
TOLD = b"\nfinishing the step, then saving; Ctrl-C once more stops at once\n"


class Signals:
    """The signals that asked a run to end, which finishes its step and saves; a second one ends a run that hangs.

    A second Ctrl-C always ends a run; a second SIGTERM, which clusters repeat, only where since the first nothing has
    moved for much longer than ever before, and nothing is being saved. Python calls no handler while the main thread
    waits for another process or a disk: a thread of its own is told of signals by `signal.set_wakeup_fd`.
    """

    def __init__(self) -> None:
        self.came: list[int] = []
        self.answered = False  # whether the run has heard them and is saving
        self.left = threading.Event()
        self._moved, self._longest = time.monotonic(), 0.0

    def moved(self) -> None:
        """Records that the run makes progress; is called after all that it waits for."""
        now = time.monotonic()
        self._longest, self._moved = max(self._longest, now - self._moved), now

    def watch(self, pipe: int, *, speaks: bool) -> None:
        """Reads the numbers of signals as they come, until the pipe ends."""
        seen: list[int] = []
        first = time.monotonic()
        while byte := os.read(pipe, 1):
            number = byte[0]
            first = first if seen else time.monotonic()
            seen += [number] if number in ENDING else []
            if number == signal.SIGINT and seen.count(number) > 1:
                if not self.left.wait(LEAVING):  # else KeyboardInterrupt has ended it
                    _end_now(number, speaks=speaks)
            elif number in ENDING and len(seen) > 1 and self._hangs(first):
                _end_now(number, speaks=speaks)
        os.close(pipe)

    def _hangs(self, first: float) -> bool:
        """Tells whether the run has not moved for long since the first signal came."""
        still = time.monotonic() - max(self._moved, first)
        return still > max(STILL, 3 * self._longest) and not self.answered and not self.left.is_set()


def _end_now(number: int, *, speaks: bool) -> None:
    """Ends the process from a thread other than its main one, which does not answer."""
    for child in multiprocessing.active_children():
        child.kill()
    if speaks:
        _write_error(b"\nended by a second signal while nothing moved; what is saved stays, the same command goes on\n")
    os._exit(128 + number)


def _write_error(line: bytes) -> None:
    if sys.stderr is not None:  # else number 2 may be any file; and print might be in the middle of something
        with suppress(OSError):
            os.write(2, line)


@contextmanager
def collected(*, quiet: bool, speaks: bool = True) -> Iterator[Signals]:
    """Collects SIGTERM, Ctrl-C and a terminal's hang-up instead of ending. Ignored signals, as by nohup, stay ignored.

    quiet   whether the first Ctrl-C is answered without a message
    speaks  whether this process reports that it was ended
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():  # only there signals can be handled
        yield signals
        return
    before = {number: signal.getsignal(number) or signal.SIG_DFL for number in ENDING}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def note(number: int, frame: object) -> None:
        signals.came.append(number)
        if number == signal.SIGINT:
            signal.signal(number, before[signal.SIGINT])
            if not quiet:
                _write_error(TOLD)

    read, write = os.pipe()
    os.set_blocking(write, False)
    earlier = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    _waking.append(write)
    threading.Thread(target=signals.watch, args=(read,), kwargs={"speaks": speaks}, daemon=True).start()
    for number in before:
        signal.signal(number, note)
    try:
        yield signals
    finally:
        signals.left.set()
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(earlier)
        os.close(_waking.pop())


_waking: list[int] = []


def _forget() -> None:
    """Keeps a forked child, such as a worker, from reporting its own signals to its parent's thread."""
    while _waking:
        signal.set_wakeup_fd(-1)
        os.close(_waking.pop())


os.register_at_fork(after_in_child=_forget)
