"""Runs: one process each, some at a time; what is done is kept, and what fails does not stop the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from manyview.comparison.outcome import curve
from manyview.comparison.plan import Entry
from manyview.config.config import Config
from manyview.config.yaml_file import to_yaml
from manyview.core.errors import UserError
from manyview.core.parallel import available
from manyview.training.run import ENCODER, Run

SETTINGS = "settings"  # the folder of what the processes are given
LATER = "what is done is kept: the same command goes on"
SIGNALLED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """Somebody has stopped the comparison; its runs are saved."""


def race(runs: Sequence[Entry], jobs: int, say: Callable[[str], None]) -> list[Entry]:
    """Trains what is not trained yet, at most `jobs` at a time. Those that have failed."""
    waiting = [entry for entry in runs if not (entry.folder / ENCODER).is_file()]
    done, failed = len(runs) - len(waiting), []
    if done:
        say(f"{done} of {len(runs)} runs are done already")
    going: dict[Entry, subprocess.Popen[bytes]] = {}
    with _stoppable(going):
        while waiting or going:
            while waiting and len(going) < jobs:
                entry = waiting.pop(0)
                going[entry] = _started(entry.config, jobs, quiet=jobs > 1)
            for entry in [each for each, process in going.items() if process.poll() is not None]:
                done += 1
                if _well(going.pop(entry)):
                    say(f"{done} of {len(runs)}: {entry.name}: {_came_of(entry)}")
                else:
                    failed.append(entry)
                    say(f"{done} of {len(runs)}: {entry.name} has failed, as it says above")
            time.sleep(0.2)
    return failed


def train_alone(config: Config) -> None:
    """One run, whose failure is an error."""
    process = _started(config, 1, quiet=True)
    with _stoppable({config.out: process}):
        if not _well(process):
            raise UserError(None, f"{config.out}: this run has failed, as it says above")


@contextmanager
def _stoppable(
    going: dict[Entry, subprocess.Popen[bytes]] | dict[str | None, subprocess.Popen[bytes]],
) -> Iterator[None]:
    """Ctrl-C, and a cluster's SIGTERM, let the processes save themselves before this one ends."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()  # only there signals can be handled
    before = signal.signal(signal.SIGTERM, stop) if here else None
    try:
        yield
    except KeyboardInterrupt:
        _end(going.values())
        raise Stopped(LATER) from None
    except BaseException:
        _end(going.values())
        raise
    finally:
        if here:
            signal.signal(signal.SIGTERM, before)


def _started(config: Config, jobs: int, *, quiet: bool) -> subprocess.Popen[bytes]:
    """A process of its own for a run: its peak of memory is its own, and it starts with a clean slate."""
    settings = Path(str(config.out)).parent / SETTINGS / f"{Path(str(config.out)).name}.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(to_yaml(replace(config, quiet=quiet, report=False)), encoding="utf-8")
    environment = dict(os.environ)
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = str(max(1, available() // jobs))
    return subprocess.Popen([sys.executable, "-m", "manyview.comparison.worker", str(settings)], env=environment)


def _well(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended well; a run that somebody has stopped stops the comparison."""
    code = process.wait()
    if code in SIGNALLED:
        raise KeyboardInterrupt
    return code == 0


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def _came_of(entry: Entry) -> str:
    points = curve(Run(entry.folder))
    return f"kNN {points[-1].score:.1%}, untrained {points[0].score:.1%}, {points[-1].seconds:,.0f} s of training"
