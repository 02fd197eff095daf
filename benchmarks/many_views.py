"""What views teach one another: CMC's Fig. 4, Tables 4 and 5 on scenes, paired sensors, and CMC beside others.

    python benchmarks/many_views.py scenes                    # more views; each view's kNN beside untrained, supervised
    python benchmarks/many_views.py prediction                # contrast against prediction, L with one other view
    python benchmarks/many_views.py pairs --data DIR          # recall across views; DIR/{train,test}/{rgb,thermal}
    python benchmarks/many_views.py methods --data DIR        # equal time; DIR/{train,test}/CLASS/*, such as CIFAR-10
    python benchmarks/many_views.py negatives --data DIR      # a memory bank, m from 16 to 4,096; softmax and NCE

Each run is a `manyview pretrain` of its own, in one thread, as many at a time as --jobs. A run that is complete in
--out is not trained again, so that a study that was stopped goes on. Settings were not chosen on the test images.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import machine_facts
from torch import nn

from manyview.data import Loader
from manyview.training import build, pipelines, run_data
from manyview.training.evaluators import KnnEvaluator
from manyview.training.run import Run

SCENES = "--data scenes --data.count 6000 --data.size 32 --batch-size 128 --epochs 4"
VIEWS = ("L", "ab", "depth", "normals")
QUIET = "--workers 0 --report false --loggers [] --quiet"
SELDOM = "--evaluate-every 1000"  # scored before and after training
PAIRS = "--augmentation cmc --augmentation.size 64 --augmentation.smallest 0.4 --batch-size 50 --epochs 150"
"""Chosen on a quarter of the training pairs, which was then not trained on."""
NEGATIVES = (16, 64, 256, 1024, 4096)
STEPS = 120  # of a measurement of speed
UNTRAINED = "untrained "
COLUMNS = {"scenes": "knn/", "prediction": "knn/L", "pairs": "recall@", "methods": "knn", "negatives": "knn"}

Scores = dict[str, float]
Runs = dict[str, str]
"""Flags of `manyview pretrain` by the name of a row."""


def scenes(given: argparse.Namespace) -> Runs:
    core = "--method cmc --method.graph core --method.core L"
    found = {f"core view L: {', '.join(VIEWS[:count])}": f"{core} {_scenes(*VIEWS[:count])}" for count in (2, 3, 4)}
    return {**found, f"full graph: {', '.join(VIEWS)}": f"--method cmc {_scenes(*VIEWS)}"}


def prediction(given: argparse.Namespace) -> Runs:
    found = {}
    for view, distance in (("depth", "l2"), ("normals", "l2"), ("semantic", "labels --distance.classes 12")):
        found[f"L and {view}, contrast"] = f"--method cmc {_scenes('L', view)}"
        predicting = f"--method prediction --method.target {view} --distance {distance}"
        found[f"L and {view}, prediction ({distance.split()[0]})"] = f"{predicting} {_scenes('L', view)}"
    return found


def pairs(given: argparse.Namespace) -> Runs:
    return {"rgb, thermal": f"--data {given.data} --method cmc --views rgb,thermal {PAIRS}"}


def methods(given: argparse.Namespace) -> Runs:
    """Scored with all images."""
    copies = "--views image --method.copies 4 --augmentation.grey 0.2 --batch-size 32"
    runs = {
        "cmc {L, ab}": _recipe(given, "cmc"),
        "cmc {Y, DbDr}": _recipe(given, "cmc", "--views Y,DbDr"),
        "cmc_moco {L, ab}": _recipe(given, "cmc_moco"),
        "CMC (K = 4)": _recipe(given, "cmc", copies),
        "simclr": _recipe(given, "simclr"),
        "cacr (K = 4)": _recipe(given, "cacr"),
    }
    return {name: f"{flags} --knn-bank 50000 --knn-queries 10000" for name, flags in runs.items()}


def negatives(given: argparse.Namespace) -> Runs:
    """The same epochs for every m, as Fig. 6 of the paper has it."""
    bank = _recipe(given, "cmc", "--memory bank --epochs 5")
    return {
        **{f"softmax, m = {m:,}": f"{bank} --memory.m {m}" for m in NEGATIVES},
        **{f"NCE, m = {m:,}": f"{bank} --memory.m {m} --loss nce --loss.temperature 0.2" for m in NEGATIVES[::2]},
    }


STUDIES: dict[str, Callable[[argparse.Namespace], Runs]] = {
    each.__name__: each for each in (scenes, prediction, pairs, methods, negatives)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, help="of training for each run, instead of epochs")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, in one thread each")
    parser.add_argument("--out", type=Path, default=Path("runs/many-views"))
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n", flush=True)
    folder = given.out / given.study
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = {name: f"{flags} {SELDOM}" for name, flags in STUDIES[given.study](given).items()}
        if given.minutes:
            flags = pool.map(
                lambda each: in_minutes(each[1], given.minutes, folder / f"{each[0]}-speed"), enumerate(runs.values())
            )
            runs = dict(zip(runs, flags, strict=True))
        todo = [
            (name, seed, folder / f"{number}-{seed}") for seed in range(given.seeds) for number, name in enumerate(runs)
        ]
        found = list(pool.map(lambda each: train(runs[each[0]], each[1], each[2]), todo))
    full = [where for name, _, where in todo if name.startswith("full graph")]
    more = [supervised(where, seed) for seed, where in enumerate(full)]
    rows: dict[str, list[Scores]] = {name: [] for name in runs}
    for (name, _, _), scores in zip(todo, found, strict=True):
        rows[name].append(scores)
    names = {name: None for each in found for name in each if name.startswith(COLUMNS[given.study])}
    print(table(rows, more, names))
    print(f"\n{given.seeds} seeds, mean and standard deviation; {' '.join(sys.argv[1:])}")


def train(flags: str, seed: int, folder: Path) -> Scores:
    """The last scores of a run, and the first as "untrained NAME"; it is trained unless it is complete."""
    if not (folder / "done").exists():
        command = [sys.executable, "-m", "manyview", "pretrain", *flags.split(), *QUIET.split()]
        threads = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [*command, "--seed", str(seed), "--out", str(folder)], env=threads, capture_output=True, text=True
        )
        if ended.returncode:
            raise SystemExit(f"{' '.join(command)}: {ended.stderr.strip()[-500:]}")
        (folder / "done").touch()
    first, last = _scored(folder)
    print(f"{folder}: {last}", file=sys.stderr, flush=True)
    return {**{UNTRAINED + name: value for name, value in first.items()}, **last}


def _scored(folder: Path) -> tuple[Scores, Scores]:
    """The first and the last scores; of a run with one encoder "knn" is that view's."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    each = [{name: value for name, value in line.items() if name.startswith(("knn", "recall@"))} for line in lines]
    scored = [found for found in each if found] or [{}]
    views = Run(folder).config.views or ("image",)
    one = {f"knn/{views[0]}": "knn"} if not any(name.startswith("knn/") for name in scored[-1]) else {}
    first, last = (
        {**found, **{new: found[old] for new, old in one.items() if old in found}} for found in (scored[0], scored[-1])
    )
    return first, last


def in_minutes(flags: str, minutes: float, trial: Path) -> str:
    """The flags with as many epochs as take so long; some steps tell the speed."""
    if not (trial / "done").exists():
        train(f"{flags} --max-steps {STEPS} --health-every {STEPS // 4}", 0, trial)
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    warm, last = lines[1], lines[-1]
    speed = (last["step"] - warm["step"]) / (last["seconds"] - warm["seconds"])
    config = Run(trial).config
    steps = len(run_data.open_data(config).train) // config.batch_size
    return f"{flags} --epochs {minutes * 60 * speed / steps:.3f}"


def supervised(folder: Path, seed: int) -> Scores:
    """kNN of each view's network, trained as a run of `scenes` was but with all labels, through a linear layer."""
    config = Run(folder).config
    data = run_data.open_data(config)
    method = build.method(config, data.channels, len(data.train))
    loader = Loader(data.train, pipelines.training(config, data.views, method), config.batch_size, seed=seed, workers=0)
    assert data.train.labels is not None
    classes = 1 + int(data.train.labels.max())
    networks = nn.ModuleDict(
        {view: nn.Sequential(each, nn.Linear(each.dim, classes)) for view, each in method.towers.encoders.items()}
    )
    optimizer = torch.optim.AdamW(networks.parameters(), lr=1e-3, weight_decay=0.02)
    total = int(config.epochs) * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    for epoch in range(int(config.epochs)):
        for batch in loader.epoch(epoch):
            views = batch.views()
            parts = [F.cross_entropy(network(views[view][0]), batch.labels) for view, network in networks.items()]
            optimizer.zero_grad()
            torch.stack(parts).sum().backward()
            optimizer.step()
            schedule.step()
    return KnnEvaluator(data, config, torch.device("cpu"))(method.towers)


def table(rows: dict[str, list[Scores]], more: list[Scores], columns: Iterable[str]) -> str:
    """Means and standard deviations over the seeds, in percent: a row a run."""

    def line(name: str, found: list[Scores], prefix: str = "") -> list[str]:
        return [
            name,
            *(mean_and_std([each[prefix + column] for each in found if prefix + column in each]) for column in columns),
        ]

    columns = list(columns)
    every = [each for found in rows.values() for each in found]
    lines = [["", *columns], ["---"] * (1 + len(columns)), line("untrained", every, UNTRAINED)]
    lines += [line(name, found) for name, found in rows.items()]
    lines += [line("supervised", more)] if more else []
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)


def mean_and_std(values: list[float], sign: str = "") -> str:
    """Shares in percent: their mean, and the standard deviation where there are several."""
    if not values:
        return ""
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.mean(values):{sign}.1f}{spread}"


def _recipe(given: argparse.Namespace, method: str, more: str = "") -> str:
    """The small recipe of a method, on the data that was given: views of 16 px, as many a step for all methods."""
    return f"--recipe cifar10-cpu-{method} --data {given.data} {more}"


def _scenes(*views: str) -> str:
    return f"{SCENES} --views {','.join(views)}"


if __name__ == "__main__":
    main()
