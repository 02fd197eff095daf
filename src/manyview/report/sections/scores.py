"""The scores, each with the protocol that it was measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manyview.embeddings.model_source import open_model
from manyview.evaluate.results import Result, read
from manyview.report.html import Child, Html, tag
from manyview.report.parts import DASH, left_out, scrollable, section, signed_points
from manyview.report.run_record import RunRecord
from manyview.training.evaluators import NEIGHBOURS

SETTINGS_LETTERS = 160
MAX_SCORES = 8  # of one protocol
BASELINE = "supervised"  # results under this name are shown beside the others
NO_SCORES = ("chosen", "epoch")  # words in the names of numbers that are reported with scores: "chosen C"
BASELINES = ("untrained", "supervised")  # columns beside a score, where they were measured


@dataclass(frozen=True)
class Row:
    """A score of a run, and what it is to be compared with."""

    run: RunRecord
    name: str
    protocol: str
    score: float
    untrained: float | None = None
    supervised: float | None = None


def scores(runs: Sequence[RunRecord]) -> Html:
    rows, missing, evaluated = [row for run in runs for row in _during_training(run)], [], False
    for run in runs:
        try:
            results = [result for result in read(run.folder) if result.protocol != BASELINE]
            present = _of_present_weights(run, results)
        except ValueError as error:
            missing.append(left_out(f"The evaluation of {run.name}", str(error)))
            continue
        evaluated |= bool(results)
        if len(present) < len(results):
            of = f"{len(results) - len(present)} evaluations of {run.name}"
            missing.append(left_out(of, "they are of other weights than it has now"))
        rows += [row for result in present for row in _rows(run, result)]
    if not rows:
        why = "the data has no labels, or kNN was turned off"
        return section("scores", "Scores", None, left_out("The table of scores", why), missing)
    lead = (
        "In percent: the share of images that are put into the right class. Read a score against the untrained "
        "encoder's: what both reach was not learnt."
    )
    return section("scores", "Scores", lead, _table(rows, len(runs) > 1), missing, None if evaluated else _advice(runs))


def _of_present_weights(run: RunRecord, results: list[Result]) -> list[Result]:
    """Drops results of an encoder that has been trained further since, where there is an encoder to compare with."""
    try:
        checksum = open_model(run.folder).checksum if results else None
    except ValueError:
        return results
    return [result for result in results if result.model.get("checksum", checksum) == checksum]


def _during_training(run: RunRecord) -> list[Row]:
    """Gives the last kNN score that training measured."""
    if not run.knn:
        return []
    config = run.config
    protocol = (
        f"during training: {NEIGHBOURS} neighbours by cosine, temperature 0.1, among at most {config.knn_bank:,} "
        f"training images; at most {config.knn_queries:,} other images as queries"
    )
    best = max(value for _, value in run.knn)
    name = f"kNN, last epoch (best {best:.1%})" if best > run.knn[-1][1] else "kNN, last epoch"
    return [Row(run, name, protocol, run.knn[-1][1], run.untrained)]


def _rows(run: RunRecord, result: Result) -> list[Row]:
    """Gives a row a score, in the order of the result."""
    untrained, supervised = result.untrained or {}, result.supervised or {}
    found = {name: value for name, value in result.scores.items() if not any(word in name for word in NO_SCORES)}
    others = [f"{name} {value:g}" for name, value in result.scores.items() if name not in found]
    more = [f"{len(found) - MAX_SCORES} more scores are in results.json"] if len(found) > MAX_SCORES else []
    data = f"on {result.data.get('name', '?')}, seed {result.seed}"
    protocol = ", ".join([*filter(None, [_settings(result.settings)]), *others, data, *more])
    return [
        Row(run, f"{result.protocol} {name}", protocol, value, untrained.get(name), supervised.get(name))
        for name, value in list(found.items())[:MAX_SCORES]
    ]


def _settings(found: Mapping[str, object]) -> str:
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items() if value is not None)
    return text if len(text) <= SETTINGS_LETTERS else f"{text[:SETTINGS_LETTERS]}\N{HORIZONTAL ELLIPSIS}"


def _table(rows: Sequence[Row], many: bool) -> Html:
    shown = [name for name in BASELINES if any(getattr(row, name) is not None for row in rows)]
    texts = [tag("th", name, scope="col") for name in (["run", "score"] if many else ["score"])]
    numbers = [tag("th", name, scope="col", class_="number") for name in ("trained", *shown)]
    top = tag("tr", texts, numbers, tag("th", "protocol", scope="col"))
    body = [tag("tr", _cells(row, many, shown)) for row in rows]
    return scrollable("Table of scores", tag("table", tag("thead", top), tag("tbody", body)))


def _cells(row: Row, many: bool, shown: Sequence[str]) -> Child:
    run = tag("th", row.run.name, scope="row", class_=f"name {row.run.colour_class}") if many else None
    gain = None if row.untrained is None else tag("small", f" {signed_points(row.score - row.untrained)}")
    score = tag("td", tag("strong", _percent(row.score)), gain, class_="number")
    others = [tag("td", _percent(getattr(row, name)), class_="number") for name in shown]
    return [run, tag("td", row.name, class_="what"), score, others, tag("td", row.protocol, class_="fine")]


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.1f}"


def _advice(runs: Sequence[RunRecord]) -> Html:
    command = f"manyview evaluate {runs[0].folder} --protocols knn,linear-fast"
    return tag("p", "More protocols: ", tag("code", command), ", then write this page again.", class_="fine")
