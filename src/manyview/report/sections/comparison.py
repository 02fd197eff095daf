"""Several methods over several seeds: means, standard deviations, differences seed by seed, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from manyview.comparison.outcome import KNN, MethodOutcome, Outcome, Point
from manyview.report.chart import Line, line_chart
from manyview.report.frame import Axis
from manyview.report.html import Html, tag
from manyview.report.parts import figure, grid, left_out, scrollable, section

ACCURACY = Axis("kNN accuracy", percent=True)
BY_EPOCH = "Mean over the seeds: what it learns from seeing every image once more."
BY_TIME = "The same by training time, without scoring: what a minute buys."


def comparison(outcome: Outcome) -> Html:
    """Makes a table and two charts of a comparison."""
    images = "" if outcome.equal_images else ", but not on as many images of it (images seen)"
    lead = (
        "Every method has trained on the same data in the same order, with the same augmentations, from the same "
        f"weights of the encoder for each seed{images}. Scores are the last epoch's, in points. "
        f"{_seeds(outcome.methods[0])} kNN is measured on {outcome.queries:,} images, a standard error of "
        f"{100 * outcome.standard_error:.1f} points."
    )
    caveat = tag("p", outcome.caveat, class_="fine") if outcome.caveat else None
    by_epoch = _knn(outcome, "kNN by epoch", Axis("epoch", low=0.0), lambda point: point.epoch, BY_EPOCH)
    by_time = _knn(outcome, "kNN by time", Axis("minutes", low=0.0), lambda point: point.seconds / 60, BY_TIME)
    failed = [left_out(name, "the run has failed") for name in outcome.failed]
    return section("comparison", "Comparison", lead, _table(outcome), caveat, failed, grid([by_epoch, by_time]))


def ranking(outcome: Outcome) -> str:
    """Says who is ahead, over all seeds; the rest of the page is about the first seed."""
    means = {each.method: statistics.mean(each.scores[KNN]) for each in outcome.methods}
    scores = ", ".join(f"{name} {mean:.1%}" for name, mean in sorted(means.items(), key=lambda each: -each[1]))
    seeds = outcome.methods[0].seeds
    if len(seeds) == 1 or any(each.seeds != seeds for each in outcome.methods):
        return f"kNN at the end: {scores}."
    return f"kNN at the end, mean of {len(seeds)} seeds: {scores}. Single runs on this page are of seed {seeds[0]}."


def _seeds(baseline: MethodOutcome) -> str:
    """Says how far the numbers can be trusted."""
    if len(baseline.seeds) == 1:
        return "One seed each, so that differences of a point or two say little."
    return (
        f"\N{PLUS-MINUS SIGN} is one standard deviation over {len(baseline.seeds)} seeds. Differences to "
        f"{baseline.method} are taken seed by seed: one that is small beside its own standard deviation is none."
    )


def _knn(outcome: Outcome, title: str, x: Axis, over: Callable[[Point], float], caption: str) -> Html:
    """Draws a line a method: the mean over the seeds of both coordinates."""
    lines = []
    for colour, each in enumerate(outcome.methods):
        points = [
            (statistics.mean(map(over, seeds)), statistics.mean(point.score for point in seeds))
            for seeds in zip(*each.curves, strict=False)
        ]
        lines.append(Line(each.method, points, colour))
    return figure(title, line_chart(title, lines, x, ACCURACY), caption)


def _table(outcome: Outcome) -> Html:
    titles = [tag("th", title, scope="col", class_="number") for title in outcome.titles]
    body = [
        tag(
            "tr",
            tag("th", each.method, scope="row"),
            [tag("td", cell, class_="number") for cell in outcome.cells(each)],
        )
        for each in outcome.methods
    ]
    top = tag("thead", tag("tr", tag("th", "method", scope="col"), titles))
    return scrollable("Table of methods", tag("table", top, tag("tbody", body)))
