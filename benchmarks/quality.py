"""What is learnt in the same time: manyview's recipe beside lightly's SimCLR and DCL examples, as a markdown table.

    python benchmarks/quality.py --data DIR --recipe cifar10-cpu-best

DIR holds train/CLASS/* and test/CLASS/* images of 32 px, such as CIFAR-10 as folders. All train the same encoder from
the same weights. They take turns: in each turn lightly's two examples do one epoch each (batch 256), and manyview gets
the mean of the time that they took. Then kNN (k = 20, T = 0.1) and a logistic regression on the frozen features.
"""

from __future__ import annotations

import argparse
import time

import torch
from contenders import Contender, Lightly, Ours, network
from measure import machine_facts, version
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from manyview.config import recipes
from manyview.data import Dataset, Loader, open_data
from manyview.features.embedding_pass import embed
from manyview.features.knn import knn
from manyview.views import AUGMENTATIONS

BAR = 6.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--recipe", default="cifar10-cpu-best")
    parser.add_argument("--epochs", type=int, default=10, help="of lightly's")
    parser.add_argument("--encoder", default="patchnet")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    train, test = (open_data(given.data, split=split) for split in ("train", "test"))
    runs = contenders(train, given.recipe, given.encoder, given.seed)
    print("\n".join(machine_facts()) + "\n")
    spent = in_turns(runs, given.epochs)
    print(
        f"| {given.epochs} epochs of lightly {version('lightly')}, seed {given.seed} | seconds | steps | kNN | linear |"
    )
    print("| --- | --- | --- | --- | --- |")
    print(line("untrained", 0.0, 0, scores(network(given.encoder, given.seed), train, test)))
    results = {name: scores(run.encoder, train, test) for name, run in runs.items()}
    for name, run in runs.items():
        print(line(name, spent[name], run.done, results[name]))
    ours = results.pop("manyview " + given.recipe)
    best = [max(each[score] for each in results.values()) for score in (0, 1)]
    gains = [100 * (mine - theirs) for mine, theirs in zip(ours, best, strict=True)]
    print(f"\nabove the better of lightly's two: kNN {gains[0]:+.1f}, linear {gains[1]:+.1f} points (bar {BAR:+})")


def contenders(train: Dataset, recipe: str, encoder: str, seed: int) -> dict[str, Contender]:
    from lightly.loss import DCLLoss, NTXentLoss

    images = torch.stack([train[row].modalities["image"] for row in range(len(train))])
    settings = {key: value for key, value in recipes.read(recipe).settings.items() if not key.startswith("data.")}
    settings |= {"encoder.name": encoder, "seed": seed}
    return {
        "lightly SimCLR": Lightly(images, network(encoder, seed), NTXentLoss()),
        "lightly DCL": Lightly(images, network(encoder, seed), DCLLoss()),
        "manyview " + recipe: Ours(train, **settings),
    }


def in_turns(runs: dict[str, Contender], epochs: int) -> dict[str, float]:
    """Seconds that each has had."""
    spent = dict.fromkeys(runs, 0.0)
    for turn in range(epochs):
        taken = []
        for name, run in runs.items():
            if isinstance(run, Lightly):
                taken.append(run.train(len(run.loader), warm=0))
            elif isinstance(run, Ours):
                taken.append(during(run, sum(taken) / len(taken), turn / epochs, 1 / epochs))
            spent[name] += taken[-1]
        told = ", ".join(f"{name} {each:.0f} s" for name, each in spent.items())
        print(f"turn {turn + 1} of {epochs}: {told}", flush=True)
    return spent


def during(run: Ours, seconds: float, done: float, share: float) -> float:
    """Trains for a time; the schedule follows the share of the whole time that has passed."""
    start, endless = time.perf_counter(), run.steps()
    while (passed := time.perf_counter() - start) < seconds:
        run.progress = done + share * passed / seconds
        next(endless)
        run.done += 1
    return passed


def scores(encoder: nn.Module, train: Dataset, test: Dataset) -> tuple[float, float]:
    """kNN and logistic regression on standardised features."""
    bank, labels = features(encoder, train)
    queries, truth = features(encoder, test)
    near = knn(bank, labels, queries, truth, k=20, temperature=0.1)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.03, max_iter=300)).fit(bank.numpy(), labels.numpy())
    return near, float(probe.score(queries.numpy(), truth.numpy()))


def features(encoder: nn.Module, data: Dataset) -> tuple[Tensor, Tensor]:
    return embed(encoder, Loader(data, AUGMENTATIONS["probe-test"](32), 250, shuffle=False, drop_last=False))


def line(name: str, seconds: float, steps: int, score: tuple[float, float]) -> str:
    return f"| {name} | {seconds:,.0f} | {steps:,} | {100 * score[0]:.1f} | {100 * score[1]:.1f} |"


if __name__ == "__main__":
    main()
