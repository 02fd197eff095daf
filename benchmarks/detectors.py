"""Boxes, masks and keypoints from other initial weights, as JCL's Table 2, in small and on generated scenes.

    python benchmarks/detectors.py                                             # about an hour of one core
    python benchmarks/detectors.py --count 200 --epochs 1 --objects 40 --steps 4 --seeds 1 --out /tmp/detectors

Encoders are trained without labels (supcon: with them) on scenes of 128 pixels, seen as views of 64, each by its CPU
recipe with the demo's augmentation and as many epochs. Then a Mask R-CNN and a Keypoint R-CNN are trained on each, and
on the network with random weights, all with the same short schedule. Each is a `manyview pretrain` or `manyview
transfer` of its own, in one thread, as many at a time as --jobs. What is complete in --out is not computed again, so
that a study that was stopped goes on. Settings were tried with --data-seed 7: other scenes than the table's.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measure import machine_facts
from methods import data_flags
from segmentation import manyview, pretrained

from manyview.comparison.outcome import mean_and_std
from manyview.evaluate.results import read

SIZE, SEEN = 128, 64  # pixels of scenes, and of the views that encoders are trained on
METHODS = ("dcl", "jcl", "cacr", "supcon")
RANDOM, LABELS = "random", "supcon"
TASKS = {"instances": ("box", "mask"), "keypoints": ("keypoint",)}
SCORES = ("AP", "AP50", "AP75")

Scores = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="scenes for pre-training")
    parser.add_argument("--epochs", type=int, default=6, help="of pre-training")
    parser.add_argument("--objects", type=int, default=300, help="scenes that detectors are trained on")
    parser.add_argument("--steps", type=int, default=250, help="of four scenes, of a detector")
    parser.add_argument("--data-seed", type=int, default=0, help="of the scenes")
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, in one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/detectors"))
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n", flush=True)
    todo = [(method, seed) for seed in range(given.seeds) for method in given.only]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda each: scored(given, *each), todo))
    print(table(found))
    print(f"\n{given.seeds} seeds, mean and standard deviation; {' '.join(sys.argv[1:])}")


def scored(given: argparse.Namespace, method: str, seed: int) -> dict[str, Scores]:
    """Trains an encoder and a detector of each kind on it: its scores, with the first method also those of random."""
    run = given.out / f"{method}-{seed}"
    made = argparse.Namespace(data="scenes", count=given.count)
    seen = data_flags(made).replace("--augmentation.size 16", f"--augmentation.size {SEEN}")
    flags = f"--recipe cifar10-cpu-{method} {seen} --data.size {SIZE} --data.seed {given.data_seed}"
    pretrained(f"{flags} --epochs {given.epochs}", seed, run)
    rows: dict[str, Scores] = {}
    for task in TASKS:
        out = given.out / f"{method}-{seed}-{task}"
        first = "true" if method == given.only[0] else "false"
        manyview(
            "transfer", str(run), "--task", task, "--data", "scenes", "--data.seed", str(given.data_seed),
            "--data.count", str(given.objects), "--side", str(SIZE),
            "--steps", str(given.steps), "--seed", str(seed), "--out", str(out), "--quiet",
            "--supervised", "false", "--untrained", first,
        )  # fmt: skip
        result = read(out)[-1]
        for name, scores in ((method, result.scores), (RANDOM, result.untrained)):
            kept = {each: value for each, value in (scores or {}).items() if each.startswith(TASKS[task])}
            rows.setdefault(name, {}).update(kept)
            print(f"{name}, seed {seed}: {kept}", file=sys.stderr, flush=True)
    return {name: scores for name, scores in rows.items() if scores}


def table(found: list[dict[str, Scores]]) -> str:
    """A line for each initialisation: AP, AP50 and AP75 in percent over the seeds."""
    columns = [f"{kind} {score}" for kinds in TASKS.values() for kind in kinds for score in SCORES]
    lines = ["| initial weights | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for row in dict.fromkeys([RANDOM, *(name for each in found for name in each)]):
        scores = [each[row] for each in found if row in each]
        shown = f"{row} (with labels)" if row == LABELS else row
        cells = [mean_and_std([each[column] for each in scores]) for column in columns]
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
