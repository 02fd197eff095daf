"""What a run's looks at its own health cost, as a share of the training's time, as a markdown table.

    python benchmarks/health.py

Runs of `manyview.pretrain` on generated scenes, a small network on small views: where steps are short, looks weigh
most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

from measure import machine_facts

import manyview
from manyview.training import messages as tell
from manyview.training import train

BAR = 0.02
CASES: dict[str, dict[str, Any]] = {
    "dcl": {"batch_size": 64},
    "dcl, large batch": {"method": "dcl", "batch_size": 256},
    "cacr": {"batch_size": 25},
    "moco_v2": {"batch_size": 64, "memory": {"size": 2048}},
}
ALL: dict[str, Any] = {
    "epochs": 3,
    "max_steps": 100,
    "augmentation": {"size": 16},
    "evaluate_every": 0,
    "report": False,
}


def main() -> None:
    print("\n".join(machine_facts()) + "\n")
    print(f"| method | images a step | training | looks at health | share (bar {BAR:.0%}) |")
    print("| --- | --- | --- | --- | --- |")
    spent: list[float] = []
    for module, name in ((train, "measured_of"), (tell, "report")):
        setattr(module, name, timed(getattr(module, name), spent))
    for name, case in CASES.items():
        spent.clear()
        with TemporaryDirectory() as folder:
            settings = {"method": name, **ALL, **case, "out": folder, "quiet": True}
            seconds = manyview.pretrain({"name": "scenes", "count": 4000}, **settings).metrics[-1]["seconds"]
        looks = sum(spent)
        print(
            f"| {name} | {case['batch_size']} | {seconds:.1f} s | {looks:.2f} s | {looks / seconds:.1%} |", flush=True
        )


def timed(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def watched(*given: Any, **more: Any) -> Any:
        start = time.perf_counter()
        found = function(*given, **more)
        spent.append(time.perf_counter() - start)
        return found

    return watched


if __name__ == "__main__":
    main()
