"""The section on retrieval across views: recalls of every pair as a matrix, and found samples as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from manyview.report.cross_view import CrossView, Found
from manyview.report.html import DASH, Child, Html, attempted, section, table, tag
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings
from manyview.report.run_record import Recall, RunRecord
from manyview.report.sections.samples import Tiles

FIRST_SHEET = 300  # sheets of thumbnails are numbered from here
QUERIES = 12  # on the page, of all pairs together
MIN_QUERIES = 2  # of a pair
MAX_PAIRS = 12  # that are shown as pictures
NEIGHBOURS = 5
LEAD = (
    "Every view goes through its own tower and head. One view of a sample is the query, and samples are searched in "
    "another view."
)
MATRIX = (
    "Recall on held-out samples, in percent: how often the query's own sample is the nearest (large), among the 5 and "
    "among the 10 nearest. Below, the same before training, and what chance gives."
)
PICTURES = (
    "On the left the query, then what is nearest to it in the other view, the nearest first. A line marks the query's "
    "own sample; where it is further away it stands at the end, with its place."
)


def across(records: Sequence[RunRecord], embedded: EmbeddedRuns) -> Html | None:
    """Makes a matrix of recalls per run, and pictures of what queries find."""
    named = len(records) > 1
    matrices = [_matrix(record, named) for record in records if record.pairs]
    searched = [each for each in embedded.shown if len(each.views) > 1]
    galleries = [
        attempted(f"Neighbours across views of {each.record.name}", partial(_gallery, each, number, named))
        for number, each in enumerate(searched)
    ]
    shown = [gallery for gallery in galleries if gallery is not None]
    if not matrices and not shown:
        return None
    legend = tag("p", MATRIX, class_="fine") if matrices else None
    return section("across", "Across views", LEAD, matrices, legend, shown)


def _matrix(record: RunRecord, named: bool) -> Child:
    """Makes a table with a row for the view of the query, and a column for the view that is searched."""
    views = list(dict.fromkeys(view for pair in record.pairs for view in pair))
    titles = [tag("th", f"to {view}", scope="col") for view in views]
    lines = [
        (tag("th", view, scope="row", class_="name"), [_cell(record, view, searched) for searched in views])
        for view in views
    ]
    name = tag("h3", record.name, class_=f"name {record.colour_class}") if named else None
    return tag(
        "div", name, table("Matrix of recalls", (tag("th", "query", scope="col"), titles), lines), class_="recalls"
    )


def _cell(record: RunRecord, query: str, searched: str) -> Html:
    found = record.recalls(query, searched)
    if not found:
        return tag("td", DASH)
    first, rest = found[0], found[1:]
    others = tag("span", [f" @{each.k} {_percent(each.last)}" for each in rest], class_="fine")
    before, chance = (_line(name, found, field) for name, field in (("untrained", "untrained"), ("chance", "chance")))
    return tag(
        "td", tag("strong", _percent(first.last)), others, before, chance, class_="recall",
        style=f"--share:{100 * min(1.0, max(0.0, first.last)):.0f}%",
    )  # fmt: skip


def _line(name: str, found: Sequence[Recall], field: str) -> Html | None:
    values = [getattr(each, field) for each in found]
    if any(value is None for value in values):
        return None
    return tag("small", f"{name} {' '.join(_percent(value) for value in values)}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _gallery(embedded: RunEmbeddings, number: int, named: bool) -> Child:
    found = embedded.across
    pairs = found.pairs[:MAX_PAIRS]
    if not pairs:
        return None
    each = max(MIN_QUERIES, QUERIES // len(pairs))
    searches = {pair: _searches(found, pair, each) for pair in pairs}
    wanted = [tile for pair, made in searches.items() for row, what in made.items() for tile in _tiles(pair, row, what)]
    tiles = Tiles(found.samples, found.samples.tiles(wanted), FIRST_SHEET + number)
    name = tag("h3", embedded.record.name, class_=f"name {embedded.record.colour_class}") if named else None
    groups = [_pair(tiles, pair, made, len(found.with_both(*pair))) for pair, made in searches.items()]
    said = f"{PICTURES} Searched: {found.samples.description}."
    return [tiles.style, name, tag("p", said, class_="fine"), tag("div", groups, class_="pairs-across")]


def _searches(found: CrossView, pair: tuple[str, str], count: int) -> dict[int, Found]:
    """Searches with some samples of as many classes as possible."""
    rows = found.samples.spread(found.with_both(*pair).tolist(), count)
    return {row: found.search(row, *pair, NEIGHBOURS) for row in rows}


def _tiles(pair: tuple[str, str], row: int, found: Found) -> list[tuple[int, str]]:
    query, searched = pair
    return [(row, query), *((each, searched) for each in found.rows), (row, searched)]


def _pair(tiles: Tiles, pair: tuple[str, str], searches: dict[int, Found], count: int) -> Html:
    title = f"{pair[0]} to {pair[1]}"
    rows = [_row(tiles, pair, row, found) for row, found in searches.items()]
    return tag("div", tag("h3", title, tag("small", f", among {count:,} samples")), rows)


def _row(tiles: Tiles, pair: tuple[str, str], row: int, found: Found) -> Html:
    query, searched = pair
    near = [
        tiles.show((each, searched), "same" if each == row else "", ", the query's own sample" if each == row else "")
        for each in found.rows
    ]
    if row not in found.rows:
        own = tiles.show((row, searched), "same", f", the query's own sample, in place {found.place:,}")
        near.append(tag("span", own, tag("small", f"place {found.place:,}"), class_="weighed own"))
    return tag("div", tiles.show((row, query), "query"), tag("div", near, class_="thumbs"), class_="row")
