"""The scores, each with the protocol that it was measured by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from manyview.embeddings.model_source import subject
from manyview.evaluate.results import Result, read
from manyview.report.html import Child, Html, tag
from manyview.report.parts import left_out, scrolled, section
from manyview.report.run_record import Told
from manyview.training.evaluators import NEIGHBOURS

LETTERS = 160  # of a protocol's settings
MOST = 8  # scores of one protocol
BASELINE = "supervised"  # results under this name are shown beside the others
BESIDE = ("chosen", "epoch")  # what scores are told beside, and are none: "chosen C"
SHOWN = ("untrained", "supervised")


@dataclass(frozen=True)
class Row:
    """A score of a run, and what it is to be compared with."""

    run: Told
    name: str
    protocol: str
    score: float
    untrained: float | None = None
    supervised: float | None = None


def scores(runs: Sequence[Told]) -> Html:
    rows, damaged, evaluated = [row for run in runs for row in _during(run)], [], False
    for run in runs:
        try:
            results = [result for result in read(run.folder) if result.protocol != BASELINE]
            present = _present(run, results)
        except ValueError as error:
            damaged.append(left_out(f"The evaluation of {run.name}", str(error)))
            continue
        evaluated |= bool(results)
        if len(present) < len(results):
            of = f"{len(results) - len(present)} evaluations of {run.name}"
            damaged.append(left_out(of, "they are of other weights than it has now"))
        rows += [row for result in present for row in _rows(run, result)]
    if not rows:
        why = "the data has no labels, or kNN was turned off"
        return section("scores", "Scores", None, left_out("The table of scores", why), damaged)
    lead = (
        "In percent: the share of images that are put into the right class. Read a score against the untrained "
        "encoder's: what both reach was not learnt."
    )
    return section("scores", "Scores", lead, _table(rows, len(runs) > 1), damaged, None if evaluated else _advice(runs))


def _present(run: Told, results: list[Result]) -> list[Result]:
    """Without those of an encoder that has been trained further since, where there is an encoder to tell by."""
    try:
        mark = subject(run.folder).mark if results else None
    except ValueError:
        return results
    return [result for result in results if result.subject.get("mark", mark) == mark]


def _during(run: Told) -> list[Row]:
    """As training scored itself."""
    if not run.knn:
        return []
    config = run.config
    how = (
        f"during training: {NEIGHBOURS} neighbours by cosine, temperature 0.1, of at most {config.knn_bank:,} images "
        f"learnt from; {config.knn_queries:,} others at most are asked about"
    )
    best = max(value for _, value in run.knn)
    note = f"kNN, last epoch (best {best:.1%})" if best > run.knn[-1][1] else "kNN, last epoch"
    return [Row(run, note, how, run.knn[-1][1], run.untrained)]


def _rows(run: Told, result: Result) -> list[Row]:
    """A row a score, those to quote first."""
    untrained, supervised = result.untrained or {}, result.supervised or {}
    named = {name: value for name, value in result.scores.items() if not any(word in name for word in BESIDE)}
    beside = [f"{name} {value:g}" for name, value in result.scores.items() if name not in named]
    more = [f"{len(named) - MOST} more scores are in results.json"] if len(named) > MOST else []
    data = f"on {result.data.get('name', '?')}, seed {result.seed}"
    how = ", ".join([*filter(None, [_settings(result.settings)]), *beside, data, *more])
    return [
        Row(run, f"{result.protocol} {name}", how, value, untrained.get(name), supervised.get(name))
        for name, value in list(named.items())[:MOST]
    ]


def _settings(found: Mapping[str, object]) -> str:
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in found.items() if value is not None)
    return text if len(text) <= LETTERS else f"{text[:LETTERS]}\N{HORIZONTAL ELLIPSIS}"


def _table(rows: Sequence[Row], many: bool) -> Html:
    shown = [name for name in SHOWN if any(getattr(row, name) is not None for row in rows)]
    words = [tag("th", name, scope="col") for name in (["run", "score"] if many else ["score"])]
    numbers = [tag("th", name, scope="col", class_="number") for name in ("trained", *shown)]
    top = tag("tr", words, numbers, tag("th", "protocol", scope="col"))
    body = [tag("tr", _cells(row, many, shown)) for row in rows]
    return scrolled("Table of scores", tag("table", tag("thead", top), tag("tbody", body)))


def _cells(row: Row, many: bool, shown: Sequence[str]) -> Child:
    run = tag("th", row.run.name, scope="row", class_=f"name {row.run.tint}") if many else None
    score = tag("td", tag("strong", _percent(row.score)), _gain(row), class_="number")
    others = [tag("td", _percent(getattr(row, name)), class_="number") for name in shown]
    return [run, tag("td", row.name, class_="what"), score, others, tag("td", row.protocol, class_="fine")]


def _gain(row: Row) -> Html | None:
    if row.untrained is None:
        return None
    points = 100 * (row.score - row.untrained)
    return tag("small", f" {'+' if points >= 0 else chr(0x2212)}{abs(points):.1f}")


def _percent(value: float | None) -> str:
    return "\N{EN DASH}" if value is None else f"{100 * value:.1f}"


def _advice(runs: Sequence[Told]) -> Html:
    command = f"manyview evaluate {runs[0].folder} --protocols knn,linear-fast"
    return tag("p", "More protocols: ", tag("code", command), ", then write this page again.", class_="fine")
