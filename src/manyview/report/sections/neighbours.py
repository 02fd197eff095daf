"""The section on nearest neighbours, as pictures, and on the classes that they keep together or confuse."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from manyview.diagnose import confusion, nearest, purity
from manyview.report.charts import Bar, bar_chart, heat_map
from manyview.report.frame import Axis
from manyview.report.html import Child, Html, attempted, figure, section, tag
from manyview.report.images import PageImages, commonest
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings

QUERIES = 8
NEIGHBOURS = 10  # from which the purity of classes is measured
MAX_CLASSES = 20  # that fit on a page: the commonest


def gallery(embedded: EmbeddedRuns) -> Html | None:
    shown = embedded.shown
    if not shown:
        return None
    labelled = shown[0].images.labels is not None
    frames = " A line below marks a neighbour of the same class, dots one of another." if labelled else ""
    said = f"{frames}{embedded.which_view}"
    lead = f"On the left an image, then those whose features are nearest to its own, the nearest first.{said}"
    sheets = {each.sheet: [other for other in shown if other.sheet == each.sheet] for each in shown}
    rows = [_row(runs, query) for runs in sheets.values() for query in choose_queries(runs[0].images)]
    return section("neighbours", "Nearest neighbours", lead, tag("div", rows, class_="gallery"))


def choose_queries(images: PageImages) -> list[int]:
    """Chooses an image of each class while there are classes left, then any."""
    firsts: dict[int, int] = {}
    for row, label in enumerate(images.label_list):
        firsts.setdefault(label, row)
    chosen = [row for label, row in sorted(firsts.items()) if label >= 0][:QUERIES]
    others = [row for row in range(len(images.names)) if row not in chosen]
    return chosen + others[: QUERIES - len(chosen)]


def _row(runs: Sequence[RunEmbeddings], query: int) -> Html:
    strips = [_strip(each, query, named=len(runs) > 1) for each in runs]
    return tag("div", _picture(runs[0], query, "query"), tag("div", strips, class_="strips"), class_="row")


def _strip(embedded: RunEmbeddings, query: int, *, named: bool) -> Html:
    record, labels = embedded.record, embedded.images.label_list
    name = tag("span", record.name, class_=f"name {record.colour_class}") if named else None
    neighbours = [
        _picture(embedded, row, "" if labels[query] < 0 else "same" if labels[row] == labels[query] else "differs")
        for row in embedded.neighbours.rows[query].tolist()
    ]
    return tag("div", name, tag("div", neighbours, class_="thumbs"), class_="of-run")


def _picture(embedded: RunEmbeddings, row: int, kind: str) -> Html:
    images = embedded.images
    return images.sheet.thumbnail(row, embedded.sheet, images.caption(row), kind)


def classes(embedded: EmbeddedRuns) -> Html | None:
    shown = [each for each in embedded.shown if each.images.labels is not None]
    if not shown:
        return None
    among = f"Measured among the images of the map: each has its {NEIGHBOURS} nearest others as neighbours."
    lead = among + embedded.which_view
    figures = [
        attempted(f"Classes of {each.record.name}", partial(_figures, each, f": {each.record.name}" * (len(shown) > 1)))
        for each in shown
    ]
    return section("classes", "Classes", lead, tag("div", figures, class_="grid pairs"))


def _figures(embedded: RunEmbeddings, name: str) -> Child:
    labels = embedded.images.labels
    assert labels is not None
    labelled = labels >= 0
    rows = labelled, labels[labelled], commonest(labels[labelled], MAX_CLASSES)
    return [_purity(embedded, *rows, name), _confusion(embedded, *rows, name)]


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
