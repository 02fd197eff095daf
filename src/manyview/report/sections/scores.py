"""The section of scores: of a run with their protocols, of compared methods over several seeds."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from manyview.comparison.outcome import KNN, MethodOutcome, Outcome, Point
from manyview.config.config import Config
from manyview.core.text import reason
from manyview.data.factory import some
from manyview.embeddings.open_model import open_model
from manyview.evaluate.results import Result, read
from manyview.report.charts import Line, line_chart
from manyview.report.frame import Axis
from manyview.report.html import DASH, Child, Html, figure, left_out, section, signed_points, table, tag
from manyview.report.run_record import LINEAR, VIEW_KNN, RunRecord
from manyview.training.evaluators import NEIGHBOURS
from manyview.training.instance import INSTANCE
from manyview.training.run_data import RunData

AXES = {KNN: "kNN accuracy"}
BY_EPOCH = "Mean over the seeds: what it learns from seeing every image once more."
SETTINGS_LETTERS = 160
MAX_SCORES = 8  # of one protocol in the table itself; the others are folded below it
BASELINE = "supervised"  # results under this name are shown beside the others
NO_SCORES = ("chosen", "epoch")  # words in the names of numbers that are reported with scores: "chosen C"
STD = " std"  # at the end of the name of a standard deviation, of which a gain would say nothing
BASELINES = ("start", "untrained", "supervised")  # columns beside a score, where they were measured
BY_TIME = "The same by training time, without scoring: what a minute buys."


def comparison(outcome: Outcome) -> Html:
    """Makes a table and two charts of a comparison."""
    images = "" if outcome.equal_images else ", but not on as many images of it"
    lead = (
        "Every method has trained on the same data in the same order, with the same augmentations, from the same "
        f"weights of the encoder for each seed{images}. Scores are the last epoch's, in points. "
        f"{_seeds(outcome.methods[0])} {outcome.measure} is measured on {outcome.queries:,} images, a standard error "
        f"of {100 * outcome.standard_error:.1f} points."
    )
    caveat = tag("p", outcome.caveat, class_="fine")
    by_epoch = _by(outcome, "epoch", Axis("epoch", low=0.0), lambda point: point.epoch, BY_EPOCH)
    by_time = _by(outcome, "time", Axis("minutes", low=0.0), lambda point: point.seconds / 60, BY_TIME)
    failed = [left_out(name, "the run has failed") for name in outcome.failed]
    columns = (
        tag("th", "method", scope="col"),
        [tag("th", each, scope="col", class_="number") for each in outcome.titles],
    )
    cells = [[tag("td", cell, class_="number") for cell in outcome.cells(each)] for each in outcome.methods]
    rows = [(tag("th", each.method, scope="row"), row) for each, row in zip(outcome.methods, cells, strict=True)]
    methods, charts = table("Table of methods", columns, rows), tag("div", by_epoch, by_time, class_="grid")
    return section("comparison", "Comparison", lead, methods, caveat, failed, charts)


def ranking(outcome: Outcome) -> str:
    """Writes who is ahead over all seeds; the rest of the page is about the first seed."""
    means = {each.method: statistics.mean(each.scores[outcome.measure]) for each in outcome.methods}
    scores = ", ".join(f"{name} {mean:.1%}" for name, mean in sorted(means.items(), key=lambda each: -each[1]))
    seeds = outcome.methods[0].seeds
    if len(seeds) == 1 or any(each.seeds != seeds for each in outcome.methods):
        return f"{outcome.measure} at the end: {scores}."
    single = f"Single runs on this page are of seed {seeds[0]}."
    return f"{outcome.measure} at the end, mean of {len(seeds)} seeds: {scores}. {single}"


def _seeds(baseline: MethodOutcome) -> str:
    """Writes how reliable the numbers are."""
    if len(baseline.seeds) == 1:
        return "One seed each, so that differences of a point or two say little."
    return (
        f"\N{PLUS-MINUS SIGN} is one standard deviation over {len(baseline.seeds)} seeds. Differences to "
        f"{baseline.method} are taken seed by seed: one that is small beside its own standard deviation is none."
    )


def _by(outcome: Outcome, what: str, x: Axis, over: Callable[[Point], float], caption: str) -> Html:
    """Draws a line per method: the mean over the seeds of both coordinates."""
    lines = []
    for colour, each in enumerate(outcome.methods):
        points = [
            (statistics.mean(map(over, seeds)), statistics.mean(point.score for point in seeds))
            for seeds in zip(*each.curves, strict=False)
        ]
        lines.append(Line(each.method, points, colour))
    title = f"{outcome.measure} by {what}"
    return figure(title, line_chart(title, lines, x, Axis(AXES.get(outcome.measure, "share"), percent=True)), caption)


@dataclass(frozen=True)
class Row:
    """A score of a run, and the scores it is compared with."""

    run: RunRecord
    name: str
    protocol: str
    score: float
    untrained: float | None = None
    supervised: float | None = None
    folded: bool = False
    error: float | None = None  # standard error of the gain over what the run began with
    start: float | None = None  # the score of the weights that the run began with, where it did

    @property
    def before(self) -> float | None:
        """The score at the start of the run, random or with weights."""
        return self.untrained if self.start is None else self.start


def scores(runs: Sequence[RunRecord], data: Mapping[int, RunData] | None = None) -> Html:
    """Makes a table of the scores; `data` is that of the runs by their colour number, as far as it could be opened."""
    opened = data or {}
    rows = [row for run in runs for row in _during_training(run, opened.get(run.colour))]
    missing: list[Html] = []
    evaluated = False
    for run in runs:
        try:
            results = [result for result in read(run.folder) if result.protocol != BASELINE]
            present = of_present_weights(run, results)
            found = [row for result in present for row in _rows(run, result)]
        except Exception as error:  # the scores of training are worth having whatever the file of others holds
            missing.append(left_out(f"The evaluation of {run.name}", reason(error)))
            continue
        evaluated |= bool(results)
        if len(present) < len(results):
            of = f"{len(results) - len(present)} evaluations of {run.name}"
            missing.append(left_out(of, "they are of other weights than it has now"))
        rows += found
    if not rows:
        why = "nothing was held out to score on, or the evaluators were turned off"
        return section("scores", "Scores", None, left_out("The table of scores", why), missing)
    lead = (
        "In percent: the share of images that are put into the right class, or are found. Read a score against the "
        "untrained encoder's: what both reach was not learnt. Beside a score stands the gain, in points; "
        "\N{PLUS-MINUS SIGN} is its standard error over the test images, which both were asked about."
    )
    many, shown = len(runs) > 1, [name for name in BASELINES if any(getattr(row, name) is not None for row in rows)]
    texts = [tag("th", name, scope="col") for name in (["run", "score"] if many else ["score"])]
    numbers = [tag("th", name, scope="col", class_="number") for name in ("trained", *shown)]
    columns = texts, numbers, tag("th", "protocol", scope="col")
    made = table("Table of scores", columns, [_cells(row, many, shown) for row in rows if not row.folded])
    folded = [_cells(row, many, shown) for row in rows if row.folded]
    more = tag(
        "details", tag("summary", f"{len(folded)} more scores"), table("Table of further scores", columns, folded)
    )
    advice = None if evaluated else _advice(runs[0], opened.get(runs[0].colour))
    return section("scores", "Scores", lead, made, more if folded else None, missing, advice)


def _advice(run: RunRecord, data: RunData | None) -> Html:
    """Says how to get more scores, which without labels takes a table or another folder."""
    command, folder = "manyview evaluate {} {}", shlex.quote(str(run.folder))
    if run.knn or (data is not None and data.labelled):
        asked = tag("code", command.format(folder, "--protocols knn,linear-fast"))
        return tag("p", "More protocols: ", asked, ", then write this page again.", class_="fine")
    across = tag("code", command.format(folder, "--protocols cross-view")) if run.pairs else None
    return tag(
        "p", "More protocols need labels: ", tag("code", command.format(folder, "--data.labels TABLE.csv")), ", or ",
        tag("code", "--data FOLDER"), " with a folder per class. Without labels: ", (across, ", ") if across else None,
        tag("code", f"manyview embed {folder} FOLDER --to FILE.npz"), " and ", tag("code", "manyview search"), ".",
        class_="fine",
    )  # fmt: skip


def of_present_weights(run: RunRecord, results: list[Result]) -> list[Result]:
    """Drops results of an encoder that was trained further since, where the encoder can be compared."""
    try:
        checksum = open_model(run.folder).checksum if results else None
    except ValueError:
        return results
    return [result for result in results if result.model.get("checksum", checksum) == checksum]


def _during_training(run: RunRecord, data: RunData | None) -> list[Row]:
    """Returns the last scores of training: kNN, and those without labels."""
    without_labels = _without_labels(run)
    if not run.knn:
        return without_labels
    bank, queries = _counts(run.config, data)
    protocol = (
        f"during training: {NEIGHBOURS} neighbours by cosine, temperature 0.1, among {bank} training images; "
        f"{queries} as queries"
    )
    best = max(value for _, value in run.knn)
    views = run.names(VIEW_KNN)
    last = "kNN, all views side by side, last epoch" if views else "kNN, last epoch"
    name = f"{last} (best {best:.1%})" if best > run.knn[-1][1] else last
    alone = "the same, with the encoder of one view"
    by_view = [row for view in views for row in _measured(run, f"kNN of {view}, last epoch", alone, VIEW_KNN + view)]
    return [*_measured(run, name, protocol, "knn"), *by_view, *_probed(run), *without_labels]


def _measured(run: RunRecord, title: str, protocol: str, name: str) -> list[Row]:
    """Returns the last measurement of a score beside that of the run's start; none where there is none."""
    score, before, random = run.last(name), run.before(name), run.random(name)
    if score is None:
        return []
    untrained, start = (before, None) if random is None else (random, before)
    return [Row(run, title, protocol, score, untrained, error=run.gain_error(name), start=start)]


def _without_labels(run: RunRecord) -> list[Row]:
    """Returns the last score of instance discrimination on held-out images."""
    points, counts = run.curve(INSTANCE), run.curve("instance_images")
    if not points or not counts:
        return []
    protocol = (
        f"during training, without labels: augmented views of {counts[-1][1]:,.0f} held-out images, each searching its "
        f"own among all of them; by chance {1 / max(1.0, counts[-1][1]):.1%}"
    )
    return _measured(run, "own image found first, last epoch", protocol, INSTANCE)


def _probed(run: RunRecord) -> list[Row]:
    """Returns the last linear probe of training, where there was one."""
    protocol = (
        f"during training: logistic regression on the frozen features of at most {run.config.knn_bank:,} training "
        "images, its penalty chosen by a fifth of them; the same queries"
    )
    return _measured(run, "linear probe, last epoch", protocol, LINEAR)


def _counts(config: Config, data: RunData | None) -> tuple[str, str]:
    """Writes how many training images were the neighbours of kNN, and which images its queries; at most, without the
    data."""
    if data is None or data.test is None:
        return f"at most {config.knn_bank:,}", f"at most {config.knn_queries:,} other images"
    kind = "held-out" if data.held_out else "test"
    asked, queries = len(data.test), len(some(data.test, config.knn_queries))
    few = f"{queries:,} of the {asked:,}" if queries < asked else f"{queries:,}"
    return f"{len(some(data.bank, config.knn_bank)):,}", f"{few} {kind} images"


def _rows(run: RunRecord, result: Result) -> list[Row]:
    """Makes a row per score, in the order of the result."""
    baselines = [
        {name: float(each) for name, each in (given or {}).items()} for given in (result.untrained, result.supervised)
    ]
    found = {name: value for name, value in result.scores.items() if not any(word in name for word in NO_SCORES)}
    others = [f"{name} {value:g}" for name, value in result.scores.items() if name not in found]
    data = f"on {result.data.get('name', '?')}, seed {result.seed}"
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in result.settings.items() if value is not None]
    text = ", ".join(settings)
    text = text if len(text) <= SETTINGS_LETTERS else f"{text[:SETTINGS_LETTERS]}\N{HORIZONTAL ELLIPSIS}"
    protocol = ", ".join([*filter(None, [text]), *others, data])
    began, supervised = baselines
    start, untrained = (began, {}) if run.config.encoder["pretrained"] else ({}, began)
    return [
        Row(
            run, f"{result.protocol} {name}", protocol, float(value), untrained.get(name), supervised.get(name),
            folded=number >= MAX_SCORES, error=(result.errors or {}).get(name), start=start.get(name),
        )
        for number, (name, value) in enumerate(found.items())
    ]  # fmt: skip


def _cells(row: Row, many: bool, shown: Sequence[str]) -> Child:
    run = tag("th", row.run.name, scope="row", class_=f"name {row.run.colour_class}") if many else None
    gain = (
        None
        if row.before is None or row.name.endswith(STD)
        else tag("small", f" {signed_points(row.score, row.before, row.error)}")
    )
    score = tag("td", tag("strong", _percent(row.score)), gain, class_="number")
    others = [tag("td", _percent(getattr(row, name)), class_="number") for name in shown]
    return [run, tag("td", row.name, class_="what"), score, others, tag("td", row.protocol, class_="fine")]


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"
