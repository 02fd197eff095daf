"""The section on the run over time: what was logged every few steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from manyview.diagnose.measures import PREFIX
from manyview.report.charts import Line, line_chart, trail_chart
from manyview.report.frame import Axis
from manyview.report.html import Html, figure, left_out, section, tag
from manyview.report.run_record import BOUND, LINEAR, PAIRS, RECALL, TERM, VIEW_HEALTH, VIEW_KNN, RunRecord
from manyview.training.instance import INSTANCE

EPOCH, MINUTES = Axis("epoch", low=0.0), Axis("minutes", low=0.0)
NATS = Axis("nats")
ACCURACY, DIMENSIONS = Axis("kNN accuracy", percent=True), Axis("dimensions (RankMe)", low=0.0)
LOG_FROM = 100.0  # times the least, from which on a curve is drawn by its logarithm
COLOUR = {  # else a warning
    "healthy": "good", "starting": "idle", "not learning yet": "idle", "diverging": "bad", "collapsing": "bad",
}  # fmt: skip
LOSS = "What is minimised. Losses of different methods are on different scales: compare shapes, not heights."
TERMS = (
    "What each part of the objective adds, before its weight: of views, one a direction of each edge of their graph."
)
BOUNDS = (
    "How many nats one view is known to tell of the other, at least: log k minus L with k negatives. It cannot exceed "
    "log k, so compare runs with as many negatives."
)
RECALLS = "How often a held-out sample in one view finds itself first in the other, by the vectors behind the heads."
BY_VIEW = "The same for each view's encoder alone, and for all views side by side."
KNN = "Share of images whose class their neighbours name. It should rise above the untrained encoder and stay."
PROBE = "Share of held-out images that a linear classifier on the frozen features puts into the right class."
OWN_IMAGE = (
    "Share of held-out images whose augmented view is nearest to its own image among all of them, by the encoder's "
    "features. It needs no labels; the views are the same every time."
)
HELD_OUT_RANK = (
    "How many dimensions the encoder's features of the same held-out images use: all that vary (RankMe), or those in "
    "which images differ by more than augmentation moves them (LiDAR). The dashed line is the most that it can be."
)
BY_TIME = "The same by training time, without the time that scoring takes: what a minute buys."
TRAIL = (
    "From the ring, the first measurement, to the dot, the last. Down: views of one image agree. Left: images "
    "spread out. A healthy run goes down and to the left, or holds one while the other falls."
)
GAP = "Cosine similarity of positives minus that of negatives: it grows while a run learns."
SIMILARITY = "Positives should be near 1, different images near 0. If both come near 1, all images become one vector."
ENTROPY = (
    "How evenly the negatives of a query weigh, H(X\u207b|X). Near the dashed maximum all weigh alike; a fall to "
    "0 means that one negative outweighs all others."
)
RANK = "How many dimensions the vectors of a batch use. Some fall is usual; 1 to 3 is a collapse."
COUPLING = (
    "The factor q_B that InfoNCE multiplies its gradient by. Near 1 all of it arrives; below 0.1 little is left to "
    "learn from. DCL removes the factor, so for it a low one does no harm."
)
IN_USE = "How many prototypes the images of a batch are given to. At 1 all go to the same, which is a collapse."
ASSIGNED = (
    "How many prototypes a single image is given to, as an entropy. At the dashed maximum every image is given to all "
    "alike, which is a collapse too."
)
GRADIENT = "The norm of the gradient. Spikes are harmless while the loss goes on; growth without end is not."
RATE = "The learning rate as the schedule has it."
NO_NUMBER = "it is not what training writes: damaged, or no finite number"


def curves(runs: Sequence[RunRecord]) -> Html:
    odd = [left_out(f"Part of {run.odd:,} lines of {run.name}'s metrics.jsonl", NO_NUMBER) for run in runs if run.odd]
    if not any(run.metrics for run in runs):
        return section("curves", "Curves", None, left_out("Curves", "metrics.jsonl holds no measurement yet"), odd)

    view = _first_view(runs)

    def chart(title: str, name: str, y: Axis, caption: str, limit: str = "", source: str = "") -> Html | None:
        return _chart(title, _lines(runs, name), y, caption, more=_limits(runs, limit), source=source)

    by_time = _lines(runs, "knn", over="minutes", alone="trained")
    drawn = [
        _loss(runs),
        _chart("kNN by epoch", _lines(runs, "knn", alone="trained"), ACCURACY, KNN, more=_untrained(runs, "knn")),
        _instance(runs),
        _chart("kNN by time", by_time, ACCURACY, BY_TIME, x=MINUTES),
        chart("Linear probe by epoch", LINEAR, Axis("accuracy", percent=True), PROBE, source="CACR, Fig. 10"),
        *(_of_views(runs[0]) if len(runs) == 1 else [_recall_of_runs(runs)]),
        _alignment_and_uniformity(runs, view),
        _similarities(runs, view),
        chart("Entropy of the negatives", "entropy", NATS, ENTROPY + view, "entropy_limit", source="CACR, Eq. 8"),
        chart("Dimensions in use", "rank", DIMENSIONS, RANK + view, "rank_limit", source="RankMe, Garrido et al."),
        *_ranks(runs),
        chart("Coupling", "coupling", Axis("q_B", low=0.0, high=1.02), COUPLING + view, source="DCL, appendix"),
        chart("Prototypes in use", "prototypes_in_use", Axis("prototypes", low=0.0), IN_USE + view, source="DINO, 5.3"),
        chart("Entropy of assignments", "assignment_entropy", NATS, ASSIGNED + view, "assignment_entropy_limit"),
        _gradient(runs),
        chart("Learning rate", "lr", Axis("learning rate", low=0.0), RATE),
    ]
    strips = _health(runs[0]) if len(runs) == 1 else None
    lead = "Point at a curve, or focus it and use the arrow keys, to read its values."
    return section("curves", "Curves", lead, strips, tag("div", drawn, class_="grid"), odd)


def _chart(
    title: str,
    shown: Sequence[Line],
    y: Axis,
    caption: str,
    *,
    more: Sequence[Line] = (),
    x: Axis = EPOCH,
    source: str = "",
) -> Html | None:
    """Draws a figure of lines with dashed references; none where nothing was measured."""
    return figure(title, line_chart(title, [*shown, *more], x, y), caption, source=source) if shown else None


def _lines(runs: Sequence[RunRecord], name: str, *, over: str = "epoch", alone: str = "") -> list[Line]:
    """Makes a line per run, named after the run, or after the metric where there is one run only."""
    return [
        Line(run.name if len(runs) > 1 else alone or name.replace("_", " "), points, run.colour)
        for run in runs
        if (points := run.curve(name, over=over))
    ]


def _limits(runs: Sequence[RunRecord], name: str) -> list[Line]:
    """Makes dashed lines for the upper limits of a metric, once for all runs that share it."""
    found: dict[float, Line] = {}
    for run in runs:
        if points := run.curve(name):
            found.setdefault(round(points[-1][1], 2), Line("maximum", points, 8, dashed=True))
    return list(found.values())


def _loss(runs: Sequence[RunRecord]) -> Html | None:
    """Draws the loss; of a single run also on held-out images."""
    shown = _lines(runs, "loss", alone="training")
    held_out = [Line("held-out", runs[0].curve(f"{PREFIX}loss"), 1)] if len(runs) == 1 else []
    return _chart("Loss", shown, Axis("loss"), LOSS, more=[line for line in held_out if line.points])


def _of_views(run: RunRecord) -> list[Html | None]:
    """Draws what a single run with several views measured of each term, view and pair of views."""
    by_view = _named(run, VIEW_KNN) and [*_named(run, VIEW_KNN), Line("side by side", run.knn, 8, dashed=True)]
    recall = _named(run, f"{RECALL}1/")
    return [
        _chart("Loss by term", _named(run, TERM), Axis("loss"), TERMS),
        _chart("Bound on mutual information", _named(run, BOUND), NATS, BOUNDS, source="CMC, Eq. 6"),
        _chart("Recall@1 across views", recall, Axis("recall@1", percent=True), RECALLS, more=_chance(run, recall)),
        _chart("kNN by view", by_view, ACCURACY, BY_VIEW),
        _chart("Dimensions in use by view", _named(run, "rank/"), DIMENSIONS, RANK, source="RankMe, Garrido et al."),
    ]


def _named(run: RunRecord, prefix: str) -> list[Line]:
    """Makes a line for each metric whose name begins so, named by the rest of its name."""
    return [
        Line(name, points, number)
        for number, name in enumerate(run.names(prefix))
        if len(points := run.curve(prefix + name)) > 1
    ]


def _chance(run: RunRecord, shown: Sequence[Line]) -> list[Line]:
    """Makes a line across the chart at the chance level, the mean over pairs of views."""
    counts = [value for line in shown for _, value in run.curve(PAIRS + line.name)[-1:] if value > 0]
    if not counts:
        return []
    mean = sum(1 / count for count in counts) / len(counts)
    ends = shown[0].points[0][0], shown[0].points[-1][0]
    return [Line("chance", [(end, mean) for end in ends], 8, dashed=True)]


def _recall_of_runs(runs: Sequence[RunRecord]) -> Html | None:
    """Draws the mean recall@1 over pairs of views, a line per run."""
    title = "Recall@1 across views, mean"
    return _chart(title, _lines(runs, f"{RECALL}1"), Axis("recall@1", percent=True), RECALLS)


def _untrained(runs: Sequence[RunRecord], name: str) -> list[Line]:
    """Makes a line across the chart at the untrained encoder's score."""
    points, before = runs[0].curve(name), runs[0].before(name)
    if len(runs) > 1 or before is None or len(points) < 2:
        return []
    return [Line("untrained", [(end, before) for end in (points[0][0], points[-1][0])], 8, dashed=True)]


def _instance(runs: Sequence[RunRecord]) -> Html | None:
    """Draws the score that needs no labels."""
    shown, axis = _lines(runs, INSTANCE, alone="trained"), Axis("share", percent=True)
    return _chart("Own image found first", shown, axis, OWN_IMAGE, more=_untrained(runs, INSTANCE))


def _ranks(runs: Sequence[RunRecord]) -> list[Html | None]:
    """Draws RankMe and LiDAR of held-out images with their upper limits."""
    return [
        _chart(f"{title} of held-out images", _lines(runs, name), Axis("dimensions", low=0.0), HELD_OUT_RANK,
               more=_limits(runs, f"{name}_limit"), source=source)
        for title, name, source in (("RankMe", "rankme", "Garrido et al."), ("LiDAR", "lidar", "Thilak et al."))
    ]  # fmt: skip


def _first_view(runs: Sequence[RunRecord]) -> str:
    """Says whose queries are measured in runs with several views: those of the first contrast."""
    firsts = dict.fromkeys(views[0] for run in runs if len(views := run.names("rank/")) > 1)
    return f" Of several views it is that of {' or '.join(firsts)}, the query of the first contrast." if firsts else ""


def _alignment_and_uniformity(runs: Sequence[RunRecord], view: str) -> Html | None:
    shown = []
    for run in runs:
        uniform, aligned = dict(run.curve("uniformity")), dict(run.curve("alignment"))
        path = [(uniform[when], aligned[when]) for when in uniform if when in aligned]
        shown += [Line(run.name, path, run.colour)] if path else []
    if not shown:
        return None
    x, y = Axis("uniformity (lower is better)"), Axis("alignment (lower is better)")
    drawn = trail_chart("Alignment against uniformity", shown, x, y)
    return figure("Alignment and uniformity", drawn, TRAIL + view, source="Wang & Isola 2020")


def _similarities(runs: Sequence[RunRecord], view: str) -> Html | None:
    if len(runs) > 1:
        return _chart("Gap of similarities", _lines(runs, "gap"), Axis("difference"), GAP + view)
    names = {"positive_similarity": "positives", "query_similarity": "other images"}
    shown = [Line(title, runs[0].curve(name), number) for number, (name, title) in enumerate(names.items())]
    return _chart("Similarity", [line for line in shown if line.points], Axis("cosine"), SIMILARITY + view)


def _gradient(runs: Sequence[RunRecord]) -> Html | None:
    shown = _lines(runs, "gradient_norm")
    values = [value for line in shown for _, value in line.points if value > 0]
    log = bool(values) and max(values) > LOG_FROM * min(values)
    return _chart("Gradient", shown if values else [], Axis("norm", low=None if log else 0.0, log=log), GRADIENT)


def _health(run: RunRecord) -> list[Html]:
    """Shows the run's health over time, and that of each view where there are several."""
    views = [_strip(run.words(VIEW_HEALTH + view), view) for view in run.names(VIEW_HEALTH)]
    return [strip for strip in (_strip(run.words(), ""), *views) if strip is not None]


def _strip(words: Sequence[tuple[int, str]], view: str) -> Html | None:
    """Makes a band of colours with words, each as wide as the time it was true for."""
    spans: list[tuple[str, int]] = []
    begin = 0
    for word, steps in groupby(words, lambda each: each[1]):
        end = [step for step, _ in steps][-1]
        spans.append((word, end - begin))
        begin = end
    if not spans:
        return None
    description = ", then ".join(f"{word} for {steps} steps" for word, steps in spans)
    of = f"{view} " if view else ""
    parts = [
        tag(
            "span", of, word, class_=f"span {COLOUR.get(word, 'warn')}", style=f"flex-grow:{max(1, steps)}",
            title=f"{of}{word}: {steps} steps",
        )
        for word, steps in spans
    ]  # fmt: skip
    return tag("div", parts, class_="strip", role="img", aria_label=f"Health {of}over the steps: {description}")
