"""The losses at work: a small network learns what four noisy views of a thing have in common, without labels.

Every thing belongs to one of ten classes. A view mixes what it is with a nuisance that is drawn anew each time and is
larger than the signal, as cropping and lighting are in pictures. A nearest-neighbour classifier on the embeddings tells
how much of the class was found; labels are used for nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview import contrast
from manyview.contract import Triple
from manyview.losses import alignment, uniformity
from manyview.pairs import each_view, every_view, view_pairs

CLASSES, SIGNAL, NUISANCE, VIEWS, BATCH, STEPS = 10, 12, 24, 4, 256, 200

RUNS: list[tuple[str, str, Callable[..., list[Triple]], dict[str, Any]]] = [
    ("InfoNCE (SimCLR)", "info_nce", every_view, {"temperature": 0.2}),
    ("DCL", "dcl", every_view, {"temperature": 0.2}),
    ("JCL", "jcl", every_view, {"temperature": 0.2, "strength": 0.1}),
    ("CACR", "cacr", each_view, {"t_neg": 2.0}),
    ("CMC, full graph", "info_nce", view_pairs, {"temperature": 0.2}),
    ("Hard negatives", "hard_negative", every_view, {"temperature": 0.5}),
    ("Align + uniform", "align_uniform", each_view, {}),
]


class Things:
    """Points with a class, and views of them."""

    def __init__(self, generator: torch.Generator) -> None:
        self.draw = partial(torch.randn, generator=generator)
        self.centres = 1.5 * self.draw(CLASSES, SIGNAL)
        self.mix = self.draw(SIGNAL + NUISANCE, 64) / 6
        self.generator = generator

    def sample(self, count: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(CLASSES, (count,), generator=self.generator)
        return self.centres[labels] + self.draw(count, SIGNAL), labels

    def view(self, things: Tensor) -> Tensor:
        return (torch.cat([things, 2.5 * self.draw(len(things), NUISANCE)], 1) @ self.mix).tanh()


def neighbours(bank: Tensor, labels: Tensor, query: Tensor, truth: Tensor, k: int = 20) -> float:
    """Share of queries whose k nearest neighbours vote for the right class, in percent."""
    nearest = labels[(query @ bank.T).topk(k).indices]
    votes = F.one_hot(nearest, CLASSES).sum(1).argmax(1)
    return 100 * (votes == truth).float().mean().item()


def main() -> None:
    torch.set_num_threads(1)  # for matrices this small; more threads would wait for one another on a busy machine
    things = Things(torch.Generator().manual_seed(0))
    train, labels = things.sample(4096)
    test, truth = things.sample(1024)
    bank, query = things.view(train), things.view(test)

    def score(encoder: nn.Module) -> float:
        with torch.no_grad():
            near, far = F.normalize(encoder(bank), dim=1), F.normalize(encoder(query), dim=1)
        return neighbours(near, labels, far, truth)

    print(f"{len(train)} unlabelled things, {VIEWS} views each, {STEPS} steps of {BATCH} on two layers.\n")
    print(f"{'objective':18} {'loss, first':>11} {'last':>7} {'kNN, untrained':>15} {'trained':>8} ", end="")
    print(f"{'alignment':>10} {'uniformity':>11} {'seconds':>8}")
    for title, loss, pairs, options in RUNS:
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
        before, began, losses = score(encoder), time.perf_counter(), []
        for _ in range(STEPS):
            chosen = torch.randperm(len(train))[:BATCH]
            views = [encoder(things.view(train[chosen])) for _ in range(VIEWS)]
            value = contrast(views, loss=loss, ids=chosen, pairs=pairs, **options)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            losses.append(value.item())
        seconds = time.perf_counter() - began
        with torch.no_grad():
            x, y = (F.normalize(encoder(things.view(test)), dim=1) for _ in range(2))
        print(f"{title:18} {losses[0]:11.3f} {losses[-1]:7.3f} {before:14.1f}% {score(encoder):7.1f}% ", end="")
        print(f"{alignment(x, y).item():10.3f} {uniformity(x).item():11.3f} {seconds:8.1f}", flush=True)
    print(
        "\nkNN: share of things whose nearest neighbours have their class; higher is better. Alignment: how far apart"
    )
    print("two views of a thing are; uniformity: how evenly things are spread; lower is better for both. Losses have")
    print("scales of their own (CMC's is a sum over 6 pairs of views in both directions): watch them fall.")
    print("\nThe same call in your own loop:  manyview.contrast([z1, z2, z3, z4], loss='dcl', temperature=0.2)")
    print("Next: docs/losses.md says what each objective is, and when to use it.")


if __name__ == "__main__":
    main()
