"""Several methods over several seeds: means, deviations, differences seed by seed, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from manyview.comparison.outcome import Outcome, Point, Row, told
from manyview.report.chart import Line, lines
from manyview.report.frame import Axis
from manyview.report.html import Html, tag
from manyview.report.parts import figure, grid, left_out, scrolled, section

KNN = Axis("kNN accuracy", percent=True)


def comparison(found: Outcome) -> Html:
    """A table and two charts."""
    first = found.rows[0]
    lead = (
        f"Every method has trained on the same images in the same order, from the same weights for each seed. "
        f"{_many(first.seeds)}; scores are the last epoch's, in points, with one deviation over the seeds. Differences "
        f"to {first.method} are taken seed by seed: one that is small beside its own deviation is none. kNN is of "
        f"{found.asked:,} images; asking about others would move it by {100 * found.doubt:.1f} points or so."
    )
    drawn = grid([_by_epoch(found.rows), _by_time(found.rows)])
    failed = [left_out(name, "the run has failed") for name in found.failed]
    return section("comparison", "Comparison", lead, _table(found), failed, drawn)


def _many(seeds: Sequence[int]) -> str:
    return "One seed, so differences of a point or two say little" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _by_epoch(rows: Sequence[Row]) -> Html:
    drawn = lines("kNN by epoch", _means(rows, lambda point: point.epoch), Axis("epoch", low=0.0), KNN)
    return figure("kNN by epoch", drawn, "Mean over the seeds: what it learns from seeing every image once more.")


def _by_time(rows: Sequence[Row]) -> Html:
    drawn = lines("kNN by time", _means(rows, lambda point: point.seconds / 60), Axis("minutes", low=0.0), KNN)
    return figure("kNN by time", drawn, "The same by training time, without scoring: what a minute buys.")


def _means(rows: Sequence[Row], over: Callable[[Point], float]) -> list[Line]:
    """A line a method: the mean over the seeds of both coordinates."""
    found = []
    for colour, row in enumerate(rows):
        points = [
            (statistics.mean(map(over, each)), statistics.mean(point.score for point in each))
            for each in zip(*row.curves, strict=False)
        ]
        found.append(Line(row.method, points, colour))
    return found


def _table(found: Outcome) -> Html:
    first = found.rows[0]
    numbers = [title for name in found.scores for title in (name, f"against {first.method}")]
    titles = [*numbers, "batch x views", "steps", "minutes", "peak memory"]
    top = tag(
        "tr", tag("th", "method", scope="col"), [tag("th", each, scope="col", class_="number") for each in titles]
    )
    body = [tag("tr", _cells(found, row)) for row in found.rows]
    return scrolled("Table of methods", tag("table", tag("thead", top), tag("tbody", body)))


def _cells(found: Outcome, row: Row) -> list[Html]:
    values = []
    for name in found.scores:
        apart = "" if row is found.rows[0] else told(found.differences(row, name), sign="+")
        values += [told(row.scores[name]), apart]
    memory = "" if row.memory is None else f"{row.memory / 2**20:,.0f} MB"
    minutes = f"{statistics.mean(row.seconds) / 60:.1f}"
    values += [f"{row.batch_size} x {row.views}", f"{row.steps:,}", minutes, memory]
    return [tag("th", row.method, scope="row"), *(tag("td", value, class_="number") for value in values)]
