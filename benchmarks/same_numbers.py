"""Does a refactoring change a number? Records the weights and metrics of short runs of all methods, and compares them.

    python benchmarks/same_numbers.py record before.pt        # on the commit before
    python benchmarks/same_numbers.py compare before.pt       # after it, on the same machine

Each method is trained from seed 0 for a few steps in one process, in two processes and in micro-batches. What a run's
last checkpoint holds of networks, memories and optimiser is compared tensor by tensor, whatever the tensors are called,
and so is every number in metrics.jsonl but the time. Bits depend on the machine and on torch: compare on one machine.
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

from manyview.methods import METHODS

FLAGS = """--data scenes --data.count 640 --data.size 32 --augmentation.size 16 --batch-size 64 --epochs 2
--max-steps 12
--seed 0 --health-every 3 --knn-bank 200 --knn-queries 100 --workers 0 --report false --quiet --loggers []
--encoder.options {"widths":[16,32],"blocks":[1,1]}"""
QUEUE = "--memory.size 256"
TWO = "-m torch.distributed.run --standalone --nproc-per-node 2"
VARIANTS = {  # paths through the code that no method's defaults take
    "simclr, 3 views": "--method simclr --method.copies 3",
    "moco_v2, symmetric, 4 splits": "--method moco_v2 --method.symmetric --method.bn-splits 4",
    "jcl, ramp": "--method jcl --method.ramp",
    "multikey, keys with gradient": "--method multikey --momentum null",
    "dcl with a queue": "--method dcl --memory queue --memory.within_batch 1",
}
MODES = {"one process": (), "micro-batches": ("--micro-batch", "16"), "two processes": ("--precision", "fp64")}
CLOSE = 1e-6


def cases() -> Iterator[tuple[str, list[str], bool]]:
    """Name, flags, and whether it takes two processes."""
    methods = {name: f"--method {name}" for name in METHODS} | VARIANTS
    for name, flags in methods.items():
        for mode, more in MODES.items():
            yield f"{name}, {mode}", [*flags.split(), *more], mode == "two processes"


def run(flags: list[str], two: bool) -> dict[str, Any]:
    """Trains, and gives the tensors of the last checkpoint and the lines of metrics.jsonl."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [sys.executable, *TWO.split()[: 6 * two], "-m", "manyview", "pretrain", *FLAGS.split(), *flags]
        if "queue" in flags or _has_queue(flags):
            arguments += QUEUE.split()
        subprocess.run([*arguments, "--out", f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
        newest = max(Path(folder, "run", "checkpoints").glob("step-*.pt"))
        state = torch.load(newest, weights_only=True)
        lines = [json.loads(line) for line in Path(folder, "run", "metrics.jsonl").read_text().splitlines()]
    return {"tensors": [*tensors(state["method"]), *tensors(state["optimizer"])], "metrics": lines}


def _has_queue(flags: list[str]) -> bool:
    import inspect

    return "size" in inspect.signature(METHODS[flags[1]]).parameters["memory"].default.keywords


def tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for each in state.values() if isinstance(state, dict) else state:
            yield from tensors(each)


def digest(tensor: Tensor) -> str:
    content = f"{tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.contiguous().numpy().tobytes()
    return hashlib.sha256(content).hexdigest()


def numbers(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    """Every number of metrics.jsonl with its step, in order of size: names may change."""
    left_out = ("step", "epoch", "seconds")
    found = [(line["step"], v) for line in lines for k, v in line.items() if k not in left_out]
    return sorted((step, value) for step, value in found if isinstance(value, int | float))


def verdict(before: dict[str, Any], after: dict[str, Any]) -> str:
    old, new = (Counter(map(digest, each["tensors"])) for each in (before, after))
    metrics = Counter(numbers(before["metrics"])) - Counter(numbers(after["metrics"]))  # new ones may be added
    if old == new and not metrics:
        return "the same to the bit"
    if old == new:
        return f"weights the same to the bit, {sum(metrics.values())} metrics are not: {list(metrics)[:3]}"
    far = furthest(before["tensors"], after["tensors"])
    return f"{'CLOSE' if far <= CLOSE else 'DIFFERENT'}: {(old - new).total()} tensors, by {far:.1e}"


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
    before = torch.load(given.file, weights_only=True) if given.action == "compare" else {}
    found, failed = {}, 0
    for name, flags, two in cases():
        if given.only not in name:
            continue
        found[name] = run(flags, two)
        if given.action == "compare":
            said = verdict(before[name], found[name])
            failed += "to the bit" not in said
            print(f"{name:<45} {said}", flush=True)
        else:
            print(f"{name:<45} {len(found[name]['tensors'])} tensors", flush=True)
    if given.action == "record":
        torch.save(found, given.file)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
