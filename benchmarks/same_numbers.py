"""Does a refactoring change a number? Records the weights and metrics of short runs of all methods, and compares them.

    python benchmarks/same_numbers.py record before.pt        # on the commit before, with that commit's script
    python benchmarks/same_numbers.py compare before.pt       # after it, on the same machine
    python benchmarks/same_numbers.py compare before.pt --only simclr

Each method is trained from seed 0 for a few steps in one process, in micro-batches and in two processes. What a run's
last checkpoint holds of networks, memories and optimiser is compared tensor by tensor, whatever the tensors are called,
and so is every number in metrics.jsonl but the time; new metrics may be added. Names of cases stay, so that a file
recorded before flags were renamed still serves. Bits depend on the machine and on torch: compare on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyview.config.resolve import resolve
from manyview.methods import METHODS

COMMAND = "-m manyview pretrain"
TWO_PROCESSES = "-m torch.distributed.run --standalone --nproc-per-node 2 "
SETTINGS = """--data scenes --data.count 640 --data.size 32 --augmentation.size 16 --batch-size 64 --epochs 2
--max-steps 12 --seed 0 --health-every 3 --knn-bank 200 --knn-queries 100 --workers 0 --report false --quiet
--loggers [] --encoder.options {"widths":[16,32],"blocks":[1,1]}"""
SMALL_QUEUE = " --memory.size 256"
VARIANTS = {  # paths through the code that no method's defaults take
    "simclr, 3 views": "--method simclr --method.copies 3",
    "moco_v2, symmetric, 4 splits": "--method moco_v2 --method.symmetric --method.bn-splits 4" + SMALL_QUEUE,
    "jcl, ramp": "--method jcl --method.ramp" + SMALL_QUEUE,
    "multikey, keys with gradient": "--method multikey --momentum null" + SMALL_QUEUE,
    "dcl with a queue": "--method dcl --memory queue --memory.within-batch 1" + SMALL_QUEUE,
}
CLOSE = 1e-6

Recorded = dict[str, Any]
"""The tensors of a checkpoint and the lines of metrics.jsonl."""


def cases() -> Iterator[tuple[str, str]]:
    """Name and command of every case; two processes in double precision, since the order of their sums may change."""
    for name, flags in ({name: method(name) for name in METHODS} | VARIANTS).items():
        yield f"{name}, one process", f"{COMMAND} {flags}"
        yield f"{name}, micro-batches", f"{COMMAND} {flags} --micro-batch 16"
        yield (
            f"{name}, two processes",
            f"{TWO_PROCESSES}{COMMAND} {flags} --precision fp64",
        )


def method(name: str) -> str:
    """Flags of a method with its defaults, but a small queue where it has one."""
    settings = resolve({}, {"data.name": "scenes", "method.name": name}).flat()
    return f"--method {name}" + (SMALL_QUEUE if "memory.size" in settings else "")


def run(command: str) -> Recorded:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, *command.split(), *SETTINGS.split(), "--out", f"{folder}/run"]
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
        newest = max(Path(folder, "run", "checkpoints").glob("step-*.pt"))
        state = torch.load(newest, weights_only=True)
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    return {"tensors": [*tensors(state["method"]), *tensors(state["optimizer"])], "metrics": lines}


def tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for each in state.values() if isinstance(state, dict) else state:
            yield from tensors(each)


def digest(tensor: Tensor) -> str:
    content = f"{tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def numbers(recorded: Recorded) -> Counter[tuple[int, float]]:
    """Every number of metrics.jsonl with its step, whatever it is called."""
    left_out = ("step", "epoch", "seconds")
    found = (
        (line["step"], value) for line in recorded["metrics"] for key, value in line.items() if key not in left_out
    )
    return Counter((step, value) for step, value in found if isinstance(value, int | float))


def verdict(before: Recorded, after: Recorded) -> tuple[bool, str]:
    """Whether all is the same to the bit, and how many tensors and numbers are not."""
    old, new = (Counter(map(digest, each["tensors"])) for each in (before, after))
    moved, gone = (old - new).total() + (new - old).total(), numbers(before) - numbers(after)
    far = furthest(before["tensors"], after["tensors"]) if moved else 0.0
    word = "the same" if not moved else "CLOSE" if far <= CLOSE else "DIFFERENT"
    by = f" by {far:.1e}" if moved else ""
    off = max((abs(value - nearest(step, value, after)) for step, value in gone), default=0.0)
    metrics = f"{gone.total()} {'CLOSE' if off <= CLOSE else 'DIFFERENT'} by {off:.1e}" if gone else "the same"
    return not moved and not gone, f"{size(before)}: weights {word + by}, metrics {metrics}"


def nearest(step: int, value: float, recorded: Recorded) -> float:
    return min((other for at, other in numbers(recorded) if at == step), key=lambda other: abs(other - value))


def size(recorded: Recorded) -> str:
    return f"{len(recorded['tensors']):>4} tensors, {numbers(recorded).total():>4} numbers"


def furthest(before: list[Tensor], after: list[Tensor]) -> float:
    """The largest difference between tensors of one shape, paired by the size of their sums."""
    if Counter(each.shape for each in before) != Counter(each.shape for each in after):
        return float("inf")
    order = [sorted(each, key=lambda t: (tuple(t.shape), float(t.double().sum()))) for each in (before, after)]
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(*order, strict=True) if a.numel())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases with this text in their name")
    given = parser.parse_args()
    before: dict[str, Recorded] = {} if given.action == "record" else torch.load(given.file, weights_only=True)
    found: dict[str, Recorded] = {}
    unlike = 0
    for name, command in cases():
        if given.only not in name:
            continue
        found[name], line = run(command), "not recorded"
        if name in before:
            same, line = verdict(before[name], found[name])
            unlike += not same
        print(f"{name:<44} {line if before else size(found[name])}", flush=True)
    if given.action == "record":
        torch.save(found, given.file)
    else:
        compared = len(found.keys() & before.keys())
        print(f"{compared - unlike} of {compared} cases are the same to the bit")
    return int(unlike > 0)


if __name__ == "__main__":
    sys.exit(main())
