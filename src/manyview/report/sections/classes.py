"""Which classes have their images together, and which are confused with one another."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from manyview.diagnose import confusion, nearest, purity
from manyview.report.bars import Bar, bar_chart, heat_map
from manyview.report.frame import Axis
from manyview.report.html import Child, Html, tag
from manyview.report.parts import attempted, figure, section
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings

NEIGHBOURS = 10
MAX_CLASSES = 20  # that fit on a page: the commonest


def classes(embedded: EmbeddedRuns) -> Html | None:
    shown = [each for each in embedded.shown if each.images.labels is not None]
    if not shown:
        return None
    lead = f"Measured among the images of the map: each has its {NEIGHBOURS} nearest others as neighbours."
    figures = [
        attempted(f"Classes of {each.record.name}", partial(_figures, each, f": {each.record.name}" * (len(shown) > 1)))
        for each in shown
    ]
    return section("classes", "Classes", lead, tag("div", figures, class_="grid pairs"))


def _figures(embedded: RunEmbeddings, name: str) -> Child:
    labels = embedded.images.labels
    assert labels is not None
    labelled = labels >= 0
    rows = labelled, labels[labelled], _commonest(labels[labelled])
    return [_purity(embedded, *rows, name), _confusion(embedded, *rows, name)]


def _commonest(labels: Tensor) -> list[int]:
    counts = labels.bincount()
    common = counts.argsort(descending=True, stable=True)[:MAX_CLASSES].tolist()
    return sorted(label for label in common if counts[label])


def _purity(embedded: RunEmbeddings, labelled: Tensor, labels: Tensor, kept: list[int], name: str) -> Html:
    found = purity(embedded.features[labelled], labels, k=NEIGHBOURS)
    before = purity(embedded.untrained_features[labelled], labels, k=NEIGHBOURS)
    class_name, colour = embedded.images.class_name, embedded.record.colour
    rows = [Bar(class_name(label), float(found.classes[label]), float(before.classes[label]), colour) for label in kept]
    rows.sort(key=lambda row: -row.value)
    caption = (
        f"Share of an image's neighbours that are of its own class; {found.mean:.0%} on average, {before.mean:.0%} "
        f"before training (the marks), and about {float(found.chance[kept].mean()):.0%} by chance."
    )
    drawn = bar_chart("Purity of neighbours", rows, Axis("same class", low=0.0, percent=True), mark="before training")
    return figure(f"Purity of neighbours{name}", drawn, caption)


def _confusion(embedded: RunEmbeddings, labelled: Tensor, labels: Tensor, kept: list[int], name: str) -> Html:
    near = nearest(embedded.features[labelled], min(NEIGHBOURS, len(labels) - 1)).rows
    votes = torch.nn.functional.one_hot(labels[near], int(labels.max()) + 1).sum(1)
    counts = confusion(labels, votes.argmax(1), int(labels.max()) + 1)[kept][:, kept].double()
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
    names = [embedded.images.class_name(label) for label in kept]
    head = "true class \N{RIGHTWARDS ARROW} class of most neighbours"
    drawn = heat_map("Confusion of classes", shares.tolist(), names, head)
    caption = "Of each class's images, in percent, the class of most of their neighbours. Good is dark on the diagonal."
    return figure(f"Confusion of classes{name}", drawn, caption)
