"""A linear probe after pre-training beside the same network trained with all labels, on one core, as a markdown table.

    python benchmarks/supervised_bar.py --data DIR                        # about 40 minutes of a core
    python benchmarks/supervised_bar.py --data DIR --recipe cifar10-cpu-best --held-out --times 1    # to choose by

DIR holds train/CLASS/* and test/CLASS/* images of 32 px, such as CIFAR-10 as folders. `patchnet` is trained with labels
for ten epochs (batch 256), by `manyview evaluate`'s baseline; the seconds of the processor that this takes, times four,
are what `manyview pretrain --data DIR --minutes M` gets, from its start to its report; or, with --recipe, as much
training by a recipe, and any --set KEY=VALUE on top. Then the probe `linear-fast` on the frozen encoder. All run in one
thread on one core. What is complete in --out is not repeated. With --held-out the last tenth of each class's training
images takes the place of the test images; that goes with --recipe.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contenders import Ours
from equal_time import PROCESSOR_CLOCK, call
from held_out import for_time
from measure import machine_facts

import manyview
from manyview.config import recipes
from manyview.data import Dataset, open_data, subset
from manyview.encoders import Encoder, create, load, save
from manyview.evaluate.finetune import supervised
from manyview.evaluate.linear_fast import linear_fast
from manyview.evaluate.prepare import prepare
from manyview.evaluate.task import Task
from manyview.training.run import Run

BAR = 3.0  # points below the supervised score, at most
LAST = 0.9  # of a class's training images, after which the held-out ones begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--recipe", help="instead of the defaults with --minutes")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="such as precision=bf16")
    parser.add_argument("--epochs", type=int, default=10, help="of the supervised training")
    parser.add_argument("--times", type=float, default=4, help="its time, for pre-training")
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"), help="of pre-training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/supervised-bar"))
    given = parser.parse_args()
    if given.held_out and given.recipe is None:
        raise SystemExit("--held-out: give a --recipe too")
    os.sched_setaffinity(0, {given.core})
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    train, test = images(given.data, given.held_out)
    about = f"{Path(given.data).name}-{'held-out' if given.held_out else 'test'}-seed{given.seed}"
    beside = kept(given.out / f"supervised-{about}-{given.epochs}.json", partial(baseline, train, test, given))
    how = ["defaults"] if given.recipe is None else [given.recipe, given.precision]
    changed = "-".join([*how, f"{given.times:g}", *given.set]).replace("/", "_")
    path = given.out / f"{changed}-{about}-{given.epochs}.json"
    train_and_probe = by_default if given.recipe is None else pretrained
    found = kept(path, partial(train_and_probe, train, test, given.times * beside["seconds"], path, given))
    print("\n".join(machine_facts()) + f"\n\n{len(train):,} training images, {len(test):,} to score on\n")
    print("| | seconds of a core | steps | linear |\n| --- | --- | --- | --- |")
    print(f"| supervised, {given.epochs} epochs | {beside['seconds']:,.0f} | | {100 * beside['top1']:.1f} |")
    print(f"| {changed} | {found['seconds']:,.0f} | {found['steps']:,} | {100 * found['top1']:.1f} |")
    print(f"\nagainst the supervised score: {100 * (found['top1'] - beside['top1']):+.1f} points (bar {-BAR})")


def images(name: str, held_out: bool) -> tuple[Dataset, Dataset]:
    """What is trained and what is scored on."""
    train = open_data(name, split="train")
    if not held_out:
        return train, open_data(name, split="test")
    assert train.labels is not None
    last = torch.zeros(len(train), dtype=torch.bool)
    for label in train.labels.unique():
        rows = (train.labels == label).nonzero()[:, 0]
        last[rows[int(LAST * len(rows)) :]] = True
    return subset(train, ~last), subset(train, last)


def kept(path: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    if not path.exists():
        path.write_text(json.dumps(compute()))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def baseline(train: Dataset, test: Dataset, given: argparse.Namespace) -> dict[str, Any]:
    """The score of the network with all labels, and the processor's seconds for that."""
    torch.manual_seed(given.seed)
    task = task_of(create("patchnet", size=32), train, test, given.seed)
    began = time.process_time()
    scores = dict(supervised(task, epochs=given.epochs, batch_size=256))
    return {"seconds": time.process_time() - began, "top1": scores["top1"]}


def pretrained(train: Dataset, test: Dataset, seconds: float, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The probe's score after so many seconds of pre-training; the encoder is kept beside it."""
    settings = {key: value for key, value in recipes.read(given.recipe).settings.items() if not key.startswith("data.")}
    settings |= {"encoder.name": "patchnet", "seed": given.seed, "precision": given.precision}
    settings |= dict(each.split("=", 1) for each in given.set)
    run = Ours(train, **settings)
    for_time(run, seconds)
    file = path.with_suffix(".safetensors")
    save(run.encoder.eval(), file)
    task = task_of(load(file), train, test, given.seed)
    return {"seconds": seconds, "steps": run.done, "top1": dict(linear_fast(task))["top1"]}


def by_default(train: Dataset, test: Dataset, seconds: float, path: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The probe's score after a run that has so much time for all that it does."""
    folder = path.with_suffix("")
    minutes = f"--minutes {seconds / 60:g} --seed {given.seed} --out {folder / 'run'}"
    folder.mkdir(parents=True, exist_ok=True)
    asked = ["pretrain", "--data", given.data, *minutes.split()]
    call([sys.executable, "-c", PROCESSOR_CLOCK, *asked, *(f"--{each}" for each in given.set)], folder)
    run = Run(folder / "run")
    task = task_of(manyview.load(run.folder), train, test, given.seed)
    return {"seconds": seconds, "steps": run.metrics[-1]["step"], "top1": dict(linear_fast(task))["top1"]}


def task_of(encoder: Encoder, train: Dataset, test: Dataset, seed: int) -> Task:
    return prepare(encoder, (train, test), seed=seed, device="cpu", workers=0)


if __name__ == "__main__":
    main()
