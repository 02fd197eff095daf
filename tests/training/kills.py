"""Kills a real training process again and again, and finds that nothing was lost.

    python -m tests.training.kills --method moco_v2 --kills 20
    python -m tests.training.kills --method moco_v2 --kills 20 --workers 2 --processes 2

`kill -9` comes at random moments: while the process starts, between and in steps, and while a checkpoint is being
written. A process that is to be killed waits for it some steps later, or in the middle of the file, so that a kill may
come late on a busy machine. Each time the same command goes on. In the end all must be as in a run that nobody
disturbed: weights, queue, optimiser, place in the schedule, random numbers, metrics and the encoder's file, to the bit.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import torch

from manyview.core.atomic import DRAFT
from tests.patience import wait_until
from tests.tiny import pictures

SCENES = {"data": "scenes", "data.count": "320"}
SETTINGS = {
    "batch_size": "32", "epochs": "16", "lr": "0.05",
    "encoder.options": "{widths: [8, 16], blocks: [1, 1]}", "knn_queries": "100", "knn_bank": "200",
    "evaluate_every": "4", "checkpoint_steps": "4", "health_every": "1", "snapshots": "2,9", "device": "cpu",
}  # fmt: skip
QUEUE = {"memory.size": "128"}  # of methods that have one
TO_BE_KILLED = """
import io, sys, time, torch
from manyview.cli.main import main
from manyview.training.run_log import RunLog

def wait_for_the_kill():
    while True:
        time.sleep(1)

def write_and_wait(self, step, *given, **named):
    write(self, step, *given, **named)
    if step >= last:
        wait_for_the_kill()

def save_some_and_wait(state, file):
    whole = io.BytesIO()
    save(state, whole)
    file.write(whole.getvalue()[: int(share * len(whole.getvalue()))])
    file.flush()
    wait_for_the_kill()

last, share = int(sys.argv[1]), float(sys.argv[2])
write, save = RunLog.write, torch.save
RunLog.write = write_and_wait
if share < 1:
    torch.save = save_some_and_wait
sys.exit(main(sys.argv[3:]))
"""
STEP = 0.15  # about the seconds that a step takes here, over which a kill is spread
LATER = 3  # steps after the one that a kill was meant for, where the process waits for it
DRAW = random.Random()
PROCESSES = [1]  # that a run has


@dataclass(frozen=True)
class Kill:
    when: str
    step: int  # the last that was done
    began: int  # the last that was done when the process began
    write: str = ""  # the file that was being written

    def __str__(self) -> str:
        return f"{self.when:<18} step {self.step:>4}, {self.step - self.began} after its beginning  {self.write}"


def command(method: str, out: Path, settings: dict[str, str]) -> list[str]:
    given = {**SETTINGS, **({} if "data" in settings else SCENES), **settings, "method": method, "out": str(out)}
    return ["pretrain", "--quiet", *chain.from_iterable((f"--{key}", value) for key, value in given.items())]


def killed(method: str, out: Path, kills: int, settings: dict[str, str]) -> Iterator[Kill]:
    """Kills the run `kills` times, each time in the next of the ways, and then lets it end."""
    arguments = command(method, out, settings)
    ways = chain([at_the_start, in_a_step], cycle([in_a_step, in_a_step, in_a_write, in_a_step]))
    for way in islice(ways, kills) if kills > 3 else (in_a_step, in_a_write, in_a_step)[:kills]:
        yield way(arguments, out)
    done = start(arguments).wait()
    if done:
        raise SystemExit(f"the run failed with code {done}")


def at_the_start(arguments: list[str], out: Path) -> Kill:
    began = step_saved(out)
    process = start(arguments, last=began + LATER)
    time.sleep(DRAW.uniform(0.0, 6.0))
    return kill(process, "at the start", out, began)


def in_a_step(arguments: list[str], out: Path) -> Kill:
    began, said, steps = step_saved(out), size(out / "train.log"), DRAW.randint(1, 9)
    process = start(arguments, last=began + steps + LATER)
    wait_until(lambda: size(out / "train.log") > said, process)  # now nothing of an earlier sitting is in the metrics
    wait_until(lambda: step_told(out) >= began + steps, process)
    time.sleep(DRAW.uniform(0.0, STEP))
    return kill(process, "in a step", out, began)


def in_a_write(arguments: list[str], out: Path) -> Kill:
    began, gone = step_saved(out), drafts(out)
    process = start(arguments, share=DRAW.uniform(0.0, 1.0))
    wait_until(lambda: drafts(out) not in ([], gone), process)
    time.sleep(DRAW.uniform(0.0, STEP))
    return kill(process, "in a write", out, began)


def start(arguments: list[str], *, last: int | None = None, share: float | None = None) -> subprocess.Popen[bytes]:
    """The run; or one that is to be killed, and waits for it after step `last` or after that share of a checkpoint."""
    program = ["-m", "manyview"]
    if last is not None or share is not None:
        text = Path(tempfile.gettempdir()) / f"to_be_killed_{os.getpid()}.py"  # torchrun starts files
        text.write_text(TO_BE_KILLED)
        program = [str(text), str(sys.maxsize if last is None else last), str(1.0 if share is None else share)]
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES[0])]
    command = [sys.executable, *(several if PROCESSES[0] > 1 else []), *program, *arguments]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})


def kill(process: subprocess.Popen[bytes], when: str, out: Path, began: int) -> Kill:
    others = below(process.pid) if PROCESSES[0] > 1 else []  # what torchrun has started, and their workers
    process.kill()
    for other in others:
        with suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    while any(Path(f"/proc/{other}/exe").exists() for other in others):
        time.sleep(0.01)
    if process.wait() != -9:
        raise SystemExit(f"{when}: the run had already ended, with code {process.returncode}; make it longer")
    return Kill(when, max(step_told(out), began), began, *drafts(out))


def below(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    try:
        own = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has ended
        return []
    return [each for child in map(int, own) for each in (child, *below(child))]


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def drafts(out: Path) -> list[str]:
    """Names of checkpoints that are not whole yet."""
    folder = out / "checkpoints"
    return [path.name for path in folder.iterdir() if DRAFT.fullmatch(path.name)] if folder.is_dir() else []


def step_saved(out: Path) -> int:
    return max((int(path.stem.partition("-")[2]) for path in (out / "checkpoints").glob("step-*.pt")), default=0)


def step_told(out: Path) -> int:
    lines = metrics(out)
    return int(lines[-1]["step"]) if lines else 0


def metrics(out: Path) -> list[dict[str, Any]]:
    """The whole lines, without the time they took."""
    path = out / "metrics.jsonl"
    whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in whole]


def differences(one: Path, other: Path) -> list[str]:
    """What is not the same in two runs' folders."""
    found = [] if metrics(one) == metrics(other) else ["metrics.jsonl"]
    if (one / "encoder.safetensors").read_bytes() != (other / "encoder.safetensors").read_bytes():
        found.append("encoder.safetensors")
    names = [sorted(path.name for path in (out / "checkpoints").iterdir()) for out in (one, other)]
    if names[0] != names[1]:
        return [*found, f"checkpoints/: {names[0]} and {names[1]}"]
    for name in names[0]:
        states = [torch.load(out / "checkpoints" / name, weights_only=True) for out in (one, other)]
        found += [f"{name}: {place}" for place in unlike(*states)]
    return found


def unlike(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Places in two nested states that differ by a bit."""
    if type(one) is not type(other):
        yield place
    elif isinstance(one, dict):
        for key in {**one, **other}:
            if key != "seconds":
                yield from unlike(one.get(key), other.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from unlike(*pair, f"{place}[{number}]")
    elif not (torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other):
        yield place


def with_workers(folder: Path, workers: int) -> dict[str, str]:
    """Settings of a run on pictures of different sizes, which workers read one by one."""
    return {"data": str(pictures(folder, 320, classes=2, sides=(32, 40))), "workers": str(workers)}


def disturbed_and_not(
    method: str, kills: int, folder: Path, settings: dict[str, str], told: Callable[[str], None] = print
) -> tuple[list[Kill], list[str]]:
    """The kills of one run, and what is not as in another that was left alone."""
    alone = start(command(method, folder / "alone", settings))
    found = []
    for number, each in enumerate(killed(method, folder / "killed", kills, settings), 1):
        told(f"{number:>3}  {each}")
        found.append(each)
    if alone.wait():
        raise SystemExit(f"the undisturbed run failed with code {alone.returncode}")
    return found, differences(folder / "alone", folder / "killed")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", default="simclr")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--workers", type=int, help="on pictures of different sizes, which workers read")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(arguments)
    DRAW.seed(given.seed)
    settings = dict(QUEUE) if "moco" in given.method or given.method in ("jcl", "multikey") else {}
    PROCESSES[0] = given.processes
    with tempfile.TemporaryDirectory() as folder:
        if given.workers is not None:
            settings |= with_workers(Path(folder) / "data", given.workers)
        kills, unlike = disturbed_and_not(given.method, given.kills, Path(folder), settings)
    later, writes = sum(each.step > each.began for each in kills), sum(bool(each.write) for each in kills)
    print(f"{given.method}: {len(kills)} kills, {later} after a first step, {writes} during a write")
    print(f"NOT the same: {'; '.join(unlike[:10])}" if unlike else "the end is the same to the bit")
    return int(bool(unlike))


if __name__ == "__main__":
    sys.exit(main())
