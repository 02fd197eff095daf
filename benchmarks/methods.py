"""Every method with its CPU recipe on the same images: kNN by epoch and by time, as a markdown table.

    python benchmarks/methods.py                                       # 20,000 generated scenes, 5 epochs
    python benchmarks/methods.py --data DIR --seeds 0 1 2 --methods simclr dcl moco_v2 jcl cacr hard_negative
    python benchmarks/methods.py --epochs 1 --settings data.count=300 --out /tmp/methods        # does it run?

The recipes are cifar10-cpu-METHOD; on scenes with the demo's augmentation: views of 16 px, without a clue in colour.
Each run is a whole `manyview.pretrain` in a folder of --out, and goes on where it was if started again.
kNN (k = 20, T = 0.1) is that of all test images against all training images. Seconds are of training alone, without
scoring; they depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from measure import machine_facts

import manyview
from manyview.config import recipes
from manyview.config.sections import SECTIONS
from manyview.training.run import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes")
    parser.add_argument("--methods", nargs="+", default=list(SECTIONS["method"].table))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--settings", nargs="*", default=[], help="KEY=VALUE, for all of them")
    given = parser.parse_args()
    more = dict(each.split("=", 1) for each in given.settings)
    print("\n".join(machine_facts()) + "\n")
    columns = " | ".join(f"epoch {epoch}" for epoch in range(given.epochs + 1))
    print(f"| method | {columns} | gain | seconds an epoch |")
    print("| --- |" + " --- |" * (given.epochs + 3))
    for method in given.methods:
        runs = [trained(given.data, method, seed, given.epochs, given.out, more) for seed in given.seeds]
        print(row(method, runs), flush=True)


def trained(data: str, method: str, seed: int, epochs: int, out: Path, more: dict[str, str]) -> Run:
    folder = out / f"{Path(data).name}-{method}-{seed}"
    if data == "scenes":
        demo = recipes.read("demo").settings
        more = {key: value for key, value in demo.items() if key.startswith("augmentation.")} | more
    return manyview.pretrain(
        data, recipe=f"cifar10-cpu-{method}", seed=seed, epochs=epochs, out=str(folder), quiet=True, loggers=[],
        report=False, knn_bank=50_000, knn_queries=10_000, **more,
    )  # fmt: skip


def row(method: str, runs: list[Run]) -> str:
    curves = [[100 * score for _, score in run.knn] for run in runs]
    cells = [spread(scores) for scores in zip(*curves, strict=True)]
    gain = spread([curve[-1] - curve[0] for curve in curves], sign="+")
    seconds = statistics.mean(run.metrics[-1]["seconds"] / (len(curves[0]) - 1) for run in runs)
    return f"| {method} | {' | '.join(cells)} | {gain} | {seconds:.0f} |"


def spread(values: list[float] | tuple[float, ...], sign: str = "") -> str:
    """Mean, and the std where there are several."""
    more = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{more}"


if __name__ == "__main__":
    main()
