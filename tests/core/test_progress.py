from __future__ import annotations

import errno
import io
import os
import pty
import sys
import threading
import time
from collections.abc import Callable

import pytest

from manyview.core.progress import ProgressBar, print_line, progress_bar


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


END = "<end>"  # of what is written to a terminal


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], str]:
    """Gives a function that runs another one with stderr on a terminal, and what a person would have seen."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")

    def run(work: Callable[[], None]) -> str:
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w") as screen, monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", screen)
            work()
            screen.write(END)
            screen.flush()
            seen = b""
            while END.encode() not in seen:  # a terminal gives what it has, piece by piece
                seen += os.read(ours, 1 << 16)
            return seen.decode().removesuffix(END)

    return run


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar(100, "embedding", start=40, lines=True) as advance:
        for _ in range(30):
            clock[0] += 0.5
            advance(2)
    assert capsys.readouterr() == ("", "embedding 80/100  4 a second  5 s left\n")


def test_without_a_terminal_it_is_silent_where_no_lines_are_wanted(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar(3, "scoring") as advance:
        clock[0] += 60
        advance()
    assert capsys.readouterr() == ("", "")


def test_a_line_that_is_wanted_now_comes_now_with_its_facts(clock: list[float]) -> None:
    file = io.StringIO()
    bar = ProgressBar(10, "step", file=file)
    clock[0] += 100  # of preparation
    bar.restart_clock(0)
    clock[0] += 6
    bar.show(2, "loss 1.5", now=True)
    bar.show(3, "loss 1.4")
    assert file.getvalue() == "step 2/10  loss 1.5  24 s left\n"


def test_on_a_terminal_there_is_a_bar_and_no_thread(on_terminal: Callable[[Callable[[], None]], str]) -> None:
    before = threading.active_count()

    def work() -> None:
        with progress_bar(3, "scoring [b]") as advance:
            assert threading.active_count() == before
            advance(2)
            time.sleep(0.11)
            advance()

    seen = on_terminal(work)
    assert "━" in seen
    assert "scoring [b] 3/3" in seen


def test_a_second_bar_at_the_same_time_is_silent(on_terminal: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with progress_bar(2, "outer"), progress_bar(2, "inner") as advance:
            time.sleep(0.11)
            advance()

    assert "inner" not in on_terminal(work)
    assert "outer" in on_terminal(lambda: ProgressBar(2, "outer").close())


def test_nothing_is_shown_where_it_is_not_wanted(on_terminal: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with progress_bar(2, "quiet", shown=False) as advance:
            advance()
        print("end", file=sys.stderr)

    assert on_terminal(work).strip() == "end"


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF])
def test_a_terminal_that_is_gone_or_a_log_that_is_full_does_not_end_the_work(number: int) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, "gone")

    print_line("said", Gone())


def test_a_narrow_terminal_leaves_out_spare_facts_and_never_the_step_or_the_time_left(
    on_terminal: Callable[[Callable[[], None]], str], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work() -> None:
        bar = ProgressBar(1000, "step")
        clock[0] += 65
        facts = ["epoch 2", "loss 5.3", "65 images/s", "own image first 12.0% (+1.0 over untrained)"]
        bar.show(100, facts, spare=facts[2:], now=True)
        bar.close()

    for columns, there in ((160, 4), (120, 3), (80, 2), (60, 1), (40, 0)):
        monkeypatch.setenv("COLUMNS", str(columns))
        seen = on_terminal(work)
        assert "step 100/1000" in seen
        assert "9 min 45 s left" in seen
        facts = ("epoch 2", "loss 5.3", "own image first 12.0% (+1.0 over untrained)", "65 images/s")
        assert [fact for fact in facts if fact in seen] == list(facts[:there])
