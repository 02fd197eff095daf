"""Nearest neighbours as pictures: what the encoder takes for alike."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.report.html import Html, tag
from manyview.report.map import class_name, labels_of
from manyview.report.parts import section, thumbnail
from manyview.report.run_embeddings import Seen

QUERIES = 8


def gallery(seen: dict[str, Seen | str]) -> Html | None:
    shown = [each for each in seen.values() if isinstance(each, Seen)]
    if not shown:
        return None
    labelled = shown[0].pictures.labels is not None
    frames = " A line below marks a neighbour of the same class, dots one of another." if labelled else ""
    lead = f"On the left an image, then those whose features are nearest to its own, the nearest first.{frames}"
    sheets = {each.sheet: [other for other in shown if other.sheet == each.sheet] for each in shown}
    rows = [_rows(alike) for alike in sheets.values()]
    return section("neighbours", "Nearest neighbours", lead, tag("div", rows, class_="gallery"))


def queries(seen: Seen) -> list[int]:
    """An image of each class, as long as there are classes; then any."""
    firsts: dict[int, int] = {}
    for row, label in enumerate(labels_of(seen)):
        firsts.setdefault(label, row)
    chosen = [row for label, row in sorted(firsts.items()) if label >= 0][:QUERIES]
    others = [row for row in range(len(seen.pictures.names)) if row not in chosen]
    return chosen + others[: QUERIES - len(chosen)]


def _rows(alike: Sequence[Seen]) -> list[Html]:
    return [_query(alike, query) for query in queries(alike[0])]


def _query(alike: Sequence[Seen], query: int) -> Html:
    strips = [_strip(each, query, named=len(alike) > 1) for each in alike]
    return tag("div", _picture(alike[0], query, "query"), tag("div", strips, class_="strips"), class_="row")


def _strip(seen: Seen, query: int, *, named: bool) -> Html:
    name = tag("span", seen.told.name, class_=f"name {seen.told.tint}") if named else None
    label = labels_of(seen)[query]
    near = [_neighbour(seen, row, label) for row in seen.near.rows[query].tolist()]
    return tag("div", name, tag("div", near, class_="thumbs"), class_="of-run")


def _neighbour(seen: Seen, row: int, label: int) -> Html:
    same = labels_of(seen)[row] == label
    return _picture(seen, row, "" if label < 0 else "same" if same else "differs")


def _picture(seen: Seen, row: int, kind: str) -> Html:
    return thumbnail(seen.pictures.sheet, row, seen.sheet, words(seen, row), kind)


def words(seen: Seen, row: int) -> str:
    """What an image is called."""
    label = labels_of(seen)[row]
    return seen.pictures.names[row] + (f", {class_name(seen, label)}" if label >= 0 else "")
