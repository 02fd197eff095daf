"""Every method with its CPU recipe on the same images, after as many epochs or as much time, as a markdown table.

    python benchmarks/methods.py --curve                        # 20,000 generated scenes, 5 epochs, kNN after each
    python benchmarks/methods.py --data DIR --epochs 3 --seeds 3                     # equal images
    python benchmarks/methods.py --data DIR --minutes 0.5 --seeds 3                  # equal time
    python benchmarks/methods.py --count 300 --epochs 1 --only simclr dcl --out /tmp/methods       # does it run?

DIR/{train,test}/CLASS/*, such as CIFAR-10. The recipes are cifar10-cpu-METHOD, with views of 16 px; on scenes with the
demo's augmentation, which leaves no clue in colour. Each run is a `manyview pretrain` of its own, in one thread, as
many at a time as --jobs; one that is complete in --out is not trained again. With --minutes some steps of each method
tell its speed first: let nothing else run meanwhile. kNN (k = 20, T = 0.1) is that of all test images against all
training images; differences to simclr are taken seed by seed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from many_views import SELDOM, in_minutes, mean_and_std, train
from measure import machine_facts

from manyview.config import recipes
from manyview.training.run import Run

FIVE = "--batch-size 26"  # as many copies a step as two of 64 images
TWO_COPIES = ("simclr", "dcl", "dclw", "hard_negative", "align_uniform")
WITH_KEYS = ("npid", "moco_v1", "moco_v2", "align_uniform_moco", "moco_v3", "multikey", "jcl")
WITHOUT_NEGATIVES = ("simsiam", "byol", "barlow_twins", "vicreg", "swav", "dino")
ROWS = {
    **{name: f"--recipe cifar10-cpu-{name}" for name in TWO_COPIES + WITH_KEYS},
    "simclr-5-copies": f"--recipe cifar10-cpu-simclr --method.copies 5 {FIVE}",
    "cmc-k4": "--recipe cifar10-cpu-cmc --views image --method.copies 4 --augmentation.grey 0.2 --batch-size 32",
    "cacr-k1": "--recipe cifar10-cpu-cacr --method.positives 1 --loss.t-neg 2.0 --batch-size 64",  # CACR C.1
    "cacr-k4": "--recipe cifar10-cpu-cacr",
    "cacr-k4-without-pi+": "--recipe cifar10-cpu-cacr --loss.attract uniform",
    "cacr-k4-without-pi-": "--recipe cifar10-cpu-cacr --loss.repel uniform",
    "uaur-k4": f"--recipe cifar10-cpu-uaur --method.positives 4 {FIVE}",
    **{
        name: f"--recipe cifar10-cpu-{name}"
        for name in ("cacr_moco", "cacr_moco_v3", "cacr_moco_v3_code", *WITHOUT_NEGATIVES)
    },
    "supcon": "--recipe cifar10-cpu-supcon",  # with labels
}
ALL_IMAGES = "--knn-bank 50000 --knn-queries 10000"
EVERY_EPOCH = "--evaluate-every 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="scenes")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="of training for each run, instead of epochs")
    parser.add_argument("--curve", action="store_true", help="score after each epoch as well")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, in one thread each")
    parser.add_argument("--count", type=int, default=20_000, help="scenes to train on")
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n", flush=True)
    length = f"{given.minutes:g}-minutes" if given.minutes else f"{given.epochs}-epochs"
    folder = given.out / f"{Path(given.data).name}-{length}"
    flags = {row: f"{ROWS[row]} {data_flags(given)} {EVERY_EPOCH if given.curve else SELDOM}" for row in given.only}
    with ThreadPoolExecutor(given.jobs) as pool:
        if given.minutes:
            timed = pool.map(lambda row: in_minutes(flags[row], given.minutes, folder / f"{row}-speed"), flags)
            flags = dict(zip(flags, timed, strict=True))
        else:
            flags = {row: f"{each} --epochs {given.epochs}" for row, each in flags.items()}
        todo = [(row, seed) for seed in range(given.seeds) for row in flags]
        list(
            pool.map(
                lambda each: train(f"{flags[each[0]]} {ALL_IMAGES}", each[1], folder / f"{each[0]}-{each[1]}"), todo
            )
        )
    print(table({row: [Run(folder / f"{row}-{seed}") for seed in range(given.seeds)] for row in flags}))


def data_flags(given: argparse.Namespace) -> str:
    if given.data != "scenes":
        return f"--data {given.data}"
    demo = recipes.read("demo").settings
    seen = [
        f"--{key.replace('_', '-')} {str(value).replace(' ', '')}"
        for key, value in demo.items()
        if key.startswith("augmentation.")
    ]
    return f"--data scenes --data.count {given.count} {' '.join(seen)}"


def table(rows: dict[str, list[Run]]) -> str:
    """A row a method: what a step sees, how many there were, kNN over the run, and the difference to simclr."""
    curves = {row: [[score for _, score in run.knn] for run in runs] for row, runs in rows.items()}
    scored = len(next(iter(curves.values()))[0])
    columns = ["untrained", *(f"epoch {epoch}" for epoch in range(1, scored - 1)), "kNN"]
    lines = [["method", "batch", "steps", "epochs", "seconds", *columns, "gain", "against simclr"]]
    lines.append(["---"] * len(lines[0]))
    for row, runs in rows.items():
        config, last = runs[0].config, runs[0].metrics[-1]
        cells = [row, str(config.batch_size), f"{last['step']:,}", f"{config.epochs:.3g}", f"{last['seconds']:.0f}"]
        cells += [mean_and_std(list(scores)) for scores in zip(*curves[row], strict=True)]
        cells.append(mean_and_std([curve[-1] - curve[0] for curve in curves[row]], sign="+"))
        pairs = zip(curves[row], curves.get("simclr", []), strict=False)
        cells.append("" if row == "simclr" else mean_and_std([ours[-1] - base[-1] for ours, base in pairs], sign="+"))
        lines.append(cells)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
