"""What the reports on a run's health cost, as a share of the training's time, as a markdown table.

    python benchmarks/health.py
    python benchmarks/health.py --steps 5          # does it run?

Runs of `manyview.pretrain` on generated scenes, a small network on small views: where steps are short, reports weigh
most.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from measure import machine_facts

import manyview
from manyview.training.monitor import Monitor

BAR = 0.02
CASES: dict[str, dict[str, Any]] = {
    "dcl": {"batch_size": 64},
    "dcl, large batch": {"method": "dcl", "batch_size": 256},
    "cacr": {"batch_size": 25},
    "moco_v2": {"batch_size": 64, "memory": {"size": 2048}},
}
ALL: dict[str, Any] = {
    "epochs": 3,
    "augmentation": {"size": 16},
    "evaluate_every": 0,
    "report": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    print("\n".join(machine_facts()) + "\n")
    print(f"| method | images a step | training | reports on health | share (bar {BAR:.0%}) |")
    print("| --- | --- | --- | --- | --- |")
    spent: list[float] = []
    for name in ("measures", "report"):
        setattr(Monitor, name, timed(getattr(Monitor, name), spent))
    for name, case in CASES.items():
        spent.clear()
        with TemporaryDirectory() as folder:
            settings = {"method": name, **ALL, **case, "max_steps": steps, "out": folder, "quiet": True}
            trained = manyview.pretrain({"name": "scenes", "count": 4000}, **settings).metrics[-1]["seconds"]
        reports = sum(spent)
        cells = f"{case['batch_size']} | {trained:.1f} s | {reports:.2f} s | {reports / trained:.1%}"
        print(f"| {name} | {cells} |", flush=True)


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def watched(*given: Any, **more: Any) -> Any:
        start = time.perf_counter()
        found = function(*given, **more)
        spent.append(time.perf_counter() - start)
        return found

    return watched


if __name__ == "__main__":
    main()
