"""Trains the runs of a comparison in one process each; finished runs are kept, and failed ones stop no other.

The process of a run is `python -m manyview.comparison.workers SETTINGS`, which calls `main`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

import torch

from manyview.comparison.outcome import COST, Cost, cost_of, deciding_score
from manyview.comparison.plan import PlannedRun
from manyview.config.config import Config
from manyview.config.recipes import to_yaml
from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.lock import InUse, is_free
from manyview.core.parallel import available
from manyview.core.text import duration, reason
from manyview.training.failures import Interrupted
from manyview.training.launch import configured, start
from manyview.training.load import has_ended
from manyview.training.run import Run

SETTINGS = "settings"  # the folder of the files that the workers are given
LATER = "what is done is kept: the same command goes on"
IN_USE = 75  # exit code of a worker whose run another process trains: EX_TEMPFAIL of sysexits.h
SIGNALLED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # exit codes of runs that somebody has stopped

Process = subprocess.Popen[bytes]


class Stopped(KeyboardInterrupt):
    """The comparison was stopped by the user; its runs are saved."""


def run_all(runs: Sequence[PlannedRun], jobs: int, say: Callable[[str], None]) -> list[PlannedRun]:
    """Trains the runs that are not complete, at most `jobs` at a time, and returns those that failed."""
    waiting = [run for run in runs if not has_ended(run.folder)]
    done, failed = len(runs) - len(waiting), []
    if done:
        say(f"{done} of {len(runs)} runs are done already")
    workers: dict[PlannedRun, Process] = {}
    elsewhere: list[PlannedRun] = []  # runs that other processes train
    with _stoppable(workers.values()):
        while waiting or elsewhere or workers:
            for run in [each for each in elsewhere if is_free(each.folder)]:
                elsewhere.remove(run)
                waiting.append(run)
            while waiting and len(workers) < jobs:
                run = waiting.pop(0)
                workers[run] = _start_worker(run.config, jobs, quiet=jobs > 1)
            for run in [each for each, worker in workers.items() if worker.poll() is not None]:
                code = _exit_code(workers.pop(run))
                if code == IN_USE:
                    elsewhere.append(run)
                    say(f"{run.name} is waited for, since another process trains it, as it says above")
                    continue
                done += 1
                score, points = deciding_score(Run(run.folder)) if code == 0 else ("", [])
                if points:
                    scores = f"{score} {points[-1].score:.1%}, untrained {points[0].score:.1%}"
                    say(f"{done} of {len(runs)}: {run.name}: {scores}, {duration(points[-1].seconds)} of training")
                elif code:
                    failed.append(run)
                    say(f"{done} of {len(runs)}: {run.name} has failed, as it says above")
            time.sleep(0.2)
    return failed


@contextmanager
def _stoppable(workers: Collection[Process]) -> Iterator[None]:
    """Lets the workers save their runs before this process ends by Ctrl-C, SIGTERM or an error."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()  # only there signals can be handled
    before = signal.signal(signal.SIGTERM, stop) if in_main_thread else None
    try:
        yield
    except BaseException as error:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
        if isinstance(error, KeyboardInterrupt):
            raise Stopped(LATER) from None
        raise
    finally:
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def _start_worker(config: Config, jobs: int, *, quiet: bool) -> Process:
    """Starts a process for one run, so that its peak of memory is its own and runs share no state."""
    folder = Path(str(config.out))
    settings = folder.parent / SETTINGS / f"{folder.name}.yaml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(to_yaml(replace(config, quiet=quiet, report=False)), encoding="utf-8")
    environment = dict(os.environ)
    if jobs > 1:
        environment["OMP_NUM_THREADS"] = str(max(1, available() // jobs))
    return subprocess.Popen([sys.executable, "-m", "manyview.comparison.workers", str(settings)], env=environment)


def _exit_code(worker: Process) -> int:
    """Waits for a worker and returns its exit code; a run that the user stopped stops the comparison."""
    code = worker.wait()
    if code in SIGNALLED:
        raise KeyboardInterrupt
    return code


def main(settings: str) -> int:
    """Trains as a file of settings says, records the cost, and returns the exit code of the run."""
    config = configured(settings, {})
    try:
        start(config)
    except Interrupted as came:
        note_cost(Path(str(config.out)))
        return came.exit_code
    except (UserError, OSError, MemoryError) as error:
        print(f"{config.out}: {reason(error)}", file=sys.stderr)
        return IN_USE if isinstance(error, InUse) else getattr(error, "exit_code", 2)
    note_cost(Path(str(config.out)))
    return 0


def note_cost(folder: Path) -> None:
    """Records the largest peak of memory of all sessions, of the GPU or else of the process, and the processors' time.

    The time is that of this process and of the workers that read its images, added to earlier sessions'.
    """
    before = cost_of(folder)
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    memory = gpu or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    here = sum(os.times()[:4])  # user and system, of this process and of its children
    cost = Cost(max(memory, before.memory or 0), round(here + (before.processor_seconds or 0.0), 1))
    with atomic_write(folder / COST) as draft:
        draft.write_text(json.dumps(asdict(cost)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
