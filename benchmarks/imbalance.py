"""Learning from classes of unequal size (CACR, section 5.1, Table 2): how much each method loses.

    python benchmarks/imbalance.py --data DIR               # DIR/{train,test}/CLASS/*, such as CIFAR-10

Each method is trained on all images, and on what the linear and the exponential rule leave of each class; then a
logistic regression and kNN are fitted to the features of the full, balanced training split (CACR C.1) and scored on the
test split. The recipes are cifar10-cpu-METHOD: the same epochs for every method, one pass through the encoder for each
copy, and about as many copies a step. Runs that are complete in --out are not trained again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from many_views import SELDOM, mean_and_std, train
from measure import machine_facts

from manyview.evaluate.results import read

RULES = {"regular": "", "linear": "--data.imbalance linear", "exponential": "--data.imbalance exponential"}
SHARED = f"--method.joint false --epochs 3 {SELDOM}"
METHODS = {
    "simclr": "--recipe cifar10-cpu-simclr",
    "hard_negative": "--recipe cifar10-cpu-hard_negative",
    "cacr, K = 1": "--recipe cifar10-cpu-cacr --method.positives 1 --loss.t-neg 2.0 --batch-size 64",  # CACR C.1
    "cacr, K = 4": "--recipe cifar10-cpu-cacr",
    "CMC, K = 4": "--recipe cifar10-cpu-cmc --views image --method.copies 4 --augmentation.grey 0.2 --batch-size 32",
}
PROTOCOLS = {"linear-fast": "linear", "knn": "kNN"}
SETTINGS = ("--linear-fast.cs", "0.03", "--no-cache", "--workers", "0")  # one C for all: nothing is chosen

Scores = dict[tuple[str, str, str], list[float]]
"""By method, rule and protocol: one a seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, in one thread each")
    parser.add_argument("--train-only", action="store_true", help="leave the scores for later")
    parser.add_argument("--out", type=Path, default=Path("runs/imbalance"))
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n", flush=True)
    cases = [(method, rule, seed) for seed in range(given.seeds) for rule in RULES for method in METHODS]
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(pool.map(lambda case: scored(given, *case), cases))
    scores: Scores = {}
    for (method, rule, _), each in zip(cases, found, strict=True):
        for protocol, value in each.items():
            scores.setdefault((method, rule, protocol), []).append(value)
    for protocol, name in PROTOCOLS.items() if scores else ():
        print(f"\n{name}, in %; drop: below the regular training set, seed by seed\n\n{table(scores, protocol)}")


def scored(given: argparse.Namespace, method: str, rule: str, seed: int) -> dict[str, float]:
    """Trains a run unless it is there, and scores it on the full training split."""
    folder = given.out / f"{method.replace(', K = ', '-k')}-{rule}-{seed}"
    train(f"{METHODS[method]} --data {given.data} {RULES[rule]} {SHARED}", seed, folder)
    if given.train_only:
        return {}
    command = [sys.executable, "-m", "manyview", "evaluate", str(folder), "--protocols", ",".join(PROTOCOLS), *SETTINGS]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stderr.strip()[-500:]}")
    return {each.protocol: each.score for each in read(folder)}


def table(scores: Scores, protocol: str) -> str:
    lines = ["| method | regular | linear | drop | exponential | drop |", "| --- " * 6 + "|"]
    for method in METHODS:
        regular, *others = (scores[method, rule, protocol] for rule in RULES)
        cells = [mean_and_std(regular)]
        for other in others:
            cells += [mean_and_std(other), mean_and_std([a - b for a, b in zip(other, regular, strict=True)])]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
