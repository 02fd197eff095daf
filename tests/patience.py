"""How tests wait: for an event, never for a time that is long enough on an idle machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

PATIENCE = 600.0  # seconds after which something hangs, however busy the machine is


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Waits for something that a process does; fails if the process ends or hangs instead, and then ends it."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if process.poll() is not None:
            raise AssertionError(f"the process ended too early, with code {process.returncode}")
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"what is waited for has not happened in {PATIENCE:.0f} s")
        time.sleep(0.01)
