"""The run over time: what was written down every few steps."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.diagnose.validation import PREFIX
from manyview.report.chart import Line, lines, trail
from manyview.report.frame import Axis
from manyview.report.html import Html, tag
from manyview.report.parts import figure, grid, left_out, section
from manyview.report.run_record import Told

EPOCH = Axis("epoch", low=0.0)
WIDE = 100.0  # times the least, from which on a curve is drawn by its logarithm
COLOUR = {"healthy": "good", "starting": "idle", "diverging": "bad", "collapsing": "bad"}  # else a warning


def curves(runs: Sequence[Told]) -> Html:
    if not any(run.lines for run in runs):
        return section("curves", "Curves", None, left_out("Curves", "metrics.jsonl holds no measurement yet"))
    drawn = [
        _loss(runs), _knn(runs), _knn_by_time(runs), _plane(runs), _similarities(runs), _entropy(runs), _rank(runs),
        _coupling(runs), _gradient(runs), _rate(runs),
    ]  # fmt: skip
    strip = _strip(runs[0]) if len(runs) == 1 else None
    lead = "Point at a curve, or focus it and use the arrow keys, to read its values."
    return section("curves", "Curves", lead, strip, grid([each for each in drawn if each is not None]))


def _lines(runs: Sequence[Told], name: str, *, over: str = "epoch", only: str = "") -> list[Line]:
    """One a run, called by the run's name, or by what it shows where there is one run only."""
    return [
        Line(run.name if len(runs) > 1 else only or name.replace("_", " "), points, run.colour)
        for run in runs
        if (points := run.curve(name, over=over))
    ]


def _limits(runs: Sequence[Told], name: str, words: str) -> list[Line]:
    """Dashed: the most that something can be, once for all runs that share it."""
    found: dict[float, Line] = {}
    for run in runs:
        points = run.curve(name)
        if points:
            alone = Line(words, points, 8, dashed=True)
            found.setdefault(round(points[-1][1], 2), alone)
    return list(found.values())


def _loss(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "loss", only="training")
    if len(runs) == 1:
        shown += [Line("kept aside", points, 1) for points in [runs[0].curve(f"{PREFIX}loss")] if points]
    caption = "What is made small. Losses of different methods are on different scales: compare shapes, not heights."
    return figure("Loss", lines("Loss", shown, EPOCH, Axis("loss")), caption) if shown else None


def _knn(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "knn", only="trained")
    caption = "Share of images whose class their neighbours name. It should rise above the untrained encoder and stay."
    axis = Axis("kNN accuracy", percent=True)
    base = _base(runs)
    return figure("kNN by epoch", lines("kNN by epoch", shown + base, EPOCH, axis), caption) if shown else None


def _base(runs: Sequence[Told]) -> list[Line]:
    """The untrained encoder's, across the chart."""
    if len(runs) > 1 or runs[0].untrained is None or len(runs[0].knn) < 2:
        return []
    ends = runs[0].knn[0][0], runs[0].knn[-1][0]
    return [Line("untrained", [(end, runs[0].untrained) for end in ends], 8, dashed=True)]


def _knn_by_time(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "knn", over="minutes", only="trained")
    caption = "The same by training time, without the time that scoring takes: what a minute buys."
    drawn = lines("kNN by time", shown, Axis("minutes", low=0.0), Axis("kNN accuracy", percent=True)) if shown else None
    return figure("kNN by time", drawn, caption) if shown else None


def _plane(runs: Sequence[Told]) -> Html | None:
    """Alignment against uniformity, from ring to dot."""
    shown = []
    for run in runs:
        uniform, aligned = dict(run.curve("uniformity")), dict(run.curve("alignment"))
        way = [(uniform[when], aligned[when]) for when in uniform if when in aligned]
        shown += [Line(run.name, way, run.colour)] if way else []
    caption = (
        "From the ring, the first measurement, to the dot, the last. Down: views of one image agree. Left: images "
        "spread out. A healthy run goes down and to the left, or holds one while the other falls."
    )
    x, y = Axis("uniformity (lower is better)"), Axis("alignment (lower is better)")
    drawn = trail("Alignment against uniformity", shown, x, y) if shown else None
    return figure("Alignment and uniformity", drawn, caption, source="Wang & Isola 2020") if shown else None


def _similarities(runs: Sequence[Told]) -> Html | None:
    if len(runs) > 1:
        shown = _lines(runs, "gap")
        caption = "Cosine similarity of positives minus that of negatives: it grows while a run learns."
        return figure("Gap of similarities", lines("Gap", shown, EPOCH, Axis("difference")), caption) if shown else None
    names = {"positive_similarity": "positives", "query_similarity": "other images"}
    shown = [Line(words, runs[0].curve(name), number) for number, (name, words) in enumerate(names.items())]
    shown = [line for line in shown if line.points]
    caption = "Positives should be near 1, different images near 0. If both come near 1, all images become one vector."
    return figure("Similarity", lines("Similarity", shown, EPOCH, Axis("cosine")), caption) if shown else None


def _entropy(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "entropy")
    caption = (
        "How evenly the negatives of a query matter, H(X\u207b|X). Near the dashed maximum all matter alike; a fall to "
        "0 means that one negative outweighs all others."
    )
    limit = _limits(runs, "entropy_limit", "maximum")
    drawn = lines("Entropy of the negatives", shown + limit, EPOCH, Axis("nats")) if shown else None
    return figure("Entropy of the negatives", drawn, caption, source="CACR, Eq. 8") if shown else None


def _rank(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "rank")
    caption = "How many dimensions the vectors of a batch use. Some fall is usual; 1 to 3 is a collapse."
    limit = _limits(runs, "rank_limit", "maximum")
    drawn = lines("Dimensions in use", shown + limit, EPOCH, Axis("dimensions (RankMe)", low=0.0)) if shown else None
    return figure("Dimensions in use", drawn, caption, source="RankMe, Eq. 1") if shown else None


def _coupling(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "coupling")
    caption = (
        "The factor q_B that InfoNCE multiplies its gradient by. Near 1 all of it arrives; below 0.1 little is left to "
        "learn from. DCL removes the factor, so for it a low one does no harm."
    )
    drawn = lines("Coupling", shown, EPOCH, Axis("q_B", low=0.0, high=1.02)) if shown else None
    return figure("Coupling", drawn, caption, source="DCL, appendix") if shown else None


def _gradient(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "gradient_norm")
    values = [value for line in shown for _, value in line.points if value > 0]
    log = bool(values) and max(values) > WIDE * min(values)
    caption = "The length of the gradient. Spikes are harmless while the loss goes on; growth without end is not."
    axis = Axis("norm", log=True) if log else Axis("norm", low=0.0)
    return figure("Gradient", lines("Gradient norm", shown, EPOCH, axis), caption) if values else None


def _rate(runs: Sequence[Told]) -> Html | None:
    shown = _lines(runs, "lr")
    caption = "The learning rate as the schedule has it."
    drawn = lines("Learning rate", shown, EPOCH, Axis("learning rate", low=0.0)) if shown else None
    return figure("Learning rate", drawn, caption) if shown else None


def _strip(run: Told) -> Html | None:
    """How the run was doing, from its beginning to its end, as a band of colours with words."""
    spans: list[tuple[str, int]] = []
    last = 0
    for line in run.lines:
        if "health" in line:
            word, steps = str(line["health"]), int(line["step"]) - last
            last = int(line["step"])
            spans = (
                [*spans[:-1], (word, spans[-1][1] + steps)]
                if spans and spans[-1][0] == word
                else [*spans, (word, steps)]
            )
    if not spans:
        return None
    words = ", then ".join(f"{word} for {steps} steps" for word, steps in spans)
    parts = [
        tag(
            "span",
            word,
            class_=f"span {COLOUR.get(word, 'warn')}",
            style=f"flex-grow:{max(1, steps)}",
            title=f"{word}: {steps} steps",
        )
        for word, steps in spans
    ]
    return tag("div", parts, class_="strip", role="img", aria_label=f"Health over the steps: {words}")
