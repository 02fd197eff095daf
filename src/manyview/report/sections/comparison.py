"""Several methods over several seeds: means, deviations, differences seed by seed, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from manyview.comparison.outcome import KNN, MethodOutcome, Outcome, Point
from manyview.report.chart import Line, lines
from manyview.report.frame import Axis
from manyview.report.html import Html, tag
from manyview.report.parts import figure, grid, left_out, scrolled, section

ACCURACY = Axis("kNN accuracy", percent=True)


def comparison(found: Outcome) -> Html:
    """A table and two charts."""
    lead = (
        "Every method has trained on the same data in the same order, with the same augmentations, from the same "
        f"weights of the encoder for each seed{_images(found)}. Scores are the last epoch's, in points. "
        f"{_seeds(found.methods[0])} kNN is of {found.queries:,} images; asking about others would move it by "
        f"{100 * found.standard_error:.1f} points or so."
    )
    also = tag("p", found.caveat, class_="fine") if found.caveat else None
    drawn = grid([_by_epoch(found.methods), _by_time(found.methods)])
    failed = [left_out(name, "the run has failed") for name in found.failed]
    return section("comparison", "Comparison", lead, _table(found), also, failed, drawn)


def standing(found: Outcome) -> str:
    """Who is ahead, over all seeds; the rest of the page is about the first."""
    means = {row.method: statistics.mean(row.scores[KNN]) for row in found.methods}
    told = ", ".join(f"{name} {mean:.1%}" for name, mean in sorted(means.items(), key=lambda each: -each[1]))
    seeds = found.methods[0].seeds
    if len(seeds) == 1 or any(row.seeds != seeds for row in found.methods):
        return f"kNN at the end: {told}."
    return f"kNN at the end, mean of {len(seeds)} seeds: {told}. Single runs on this page are of seed {seeds[0]}."


def _images(found: Outcome) -> str:
    return "" if found.equal_images else ", but not on as many images of it (images seen)"


def _seeds(first: MethodOutcome) -> str:
    """How far the numbers can be trusted."""
    if len(first.seeds) == 1:
        return "One seed each, so that differences of a point or two say little."
    return (
        f"Behind \N{PLUS-MINUS SIGN} stands one deviation over {len(first.seeds)} seeds. Differences to {first.method} "
        "are taken seed by seed: one that is small beside its own deviation is none."
    )


def _by_epoch(rows: Sequence[MethodOutcome]) -> Html:
    drawn = lines("kNN by epoch", _means(rows, lambda point: point.epoch), Axis("epoch", low=0.0), ACCURACY)
    return figure("kNN by epoch", drawn, "Mean over the seeds: what it learns from seeing every image once more.")


def _by_time(rows: Sequence[MethodOutcome]) -> Html:
    drawn = lines("kNN by time", _means(rows, lambda point: point.seconds / 60), Axis("minutes", low=0.0), ACCURACY)
    return figure("kNN by time", drawn, "The same by training time, without scoring: what a minute buys.")


def _means(rows: Sequence[MethodOutcome], over: Callable[[Point], float]) -> list[Line]:
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
    titles = [tag("th", each, scope="col", class_="number") for each in found.titles]
    body = [
        tag("tr", tag("th", row.method, scope="row"), [tag("td", cell, class_="number") for cell in found.cells(row)])
        for row in found.methods
    ]
    top = tag("thead", tag("tr", tag("th", "method", scope="col"), titles))
    return scrolled("Table of methods", tag("table", top, tag("tbody", body)))
