"""Nearest neighbours as pictures: which images have similar features."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.report.html import Html, tag
from manyview.report.images import PageImages
from manyview.report.parts import section, thumbnail
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings

QUERIES = 8


def gallery(embedded: EmbeddedRuns) -> Html | None:
    shown = embedded.shown
    if not shown:
        return None
    labelled = shown[0].images.labels is not None
    frames = " A line below marks a neighbour of the same class, dots one of another." if labelled else ""
    lead = f"On the left an image, then those whose features are nearest to its own, the nearest first.{frames}"
    sheets = {each.sheet: [other for other in shown if other.sheet == each.sheet] for each in shown}
    rows = [_row(runs, query) for runs in sheets.values() for query in choose_queries(runs[0].images)]
    return section("neighbours", "Nearest neighbours", lead, tag("div", rows, class_="gallery"))


def choose_queries(images: PageImages) -> list[int]:
    """Chooses an image of each class, as long as there are classes; then any."""
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
    return thumbnail(images.sheet, row, embedded.sheet, images.caption(row), kind)
