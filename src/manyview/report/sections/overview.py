"""The header of a page, with its result in one sentence, and at its end all settings to repeat the run."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Sequence

import torch

from manyview import __version__
from manyview.config.config import RUNTIME_KEYS
from manyview.config.recipes import to_yaml
from manyview.core.text import counted, duration
from manyview.report.frame import mean
from manyview.report.html import DASH, Child, Html, copyable, section, signed_points, table, tag
from manyview.report.run_record import RunRecord
from manyview.training.gains import FEW_STEPS
from manyview.training.instance import INSTANCE

NAMED_RUNS = 6  # in the first sentence
LEVELS = {
    "healthy": ("good", "\N{CHECK MARK}"),
    "unknown": ("idle", "\N{HORIZONTAL ELLIPSIS}"),  # neither good nor bad: too little is known
    "warning": ("warn", "!"),
    "bad": ("bad", "\N{MULTIPLICATION SIGN}"),
}
HEALTH = {
    "healthy": "the run is healthy",
    "starting": "it is too early to tell whether the run is healthy",
    "not learning yet": "it has not collapsed, but nothing shows yet that it learns",
    "diverging": "the loss is running away",
    "broken data": "part of the data is broken",
    "collapsing": "all images are becoming the same vector",
    "collapsed dimensions": "the vectors use only a few of their dimensions",
    "saturated": "little gradient is left, for the positives are told apart already",
    "not learning": "it is no better than before training",
}


def header(runs: Sequence[RunRecord], ranking: str | None = None) -> Html:
    """Makes the header; `ranking` is a sentence on several runs, where more is known than their records say."""
    body = _one(runs[0]) if len(runs) == 1 else _several(runs, ranking)
    written = f"manyview {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    begun = f"Begun on {runs[0].date}. " if len(runs) == 1 else ""
    foot = tag("p", f"{begun}Written on {time.strftime('%d %B %Y, %H:%M')} with {written}.", class_="fine")
    return tag("header", tag("p", "manyview report", class_="eyebrow"), tag("h1", title(runs)), body, foot)


def title(runs: Sequence[RunRecord]) -> str:
    """Names the methods and the data of the runs."""
    data = list(dict.fromkeys(run.data for run in runs))
    methods = list(dict.fromkeys(run.method for run in runs))
    shown = ", ".join(methods[:4]) + (", ..." if len(methods) > 4 else "")
    many = f"{len(runs)} runs: {shown}" if len(runs) > 1 else shown
    return f"{many} on {' and '.join(data[:2])}{' and others' if len(data) > 2 else ''}"


def summary(run: RunRecord) -> str:
    """Writes one sentence about the outcome of a run."""
    verdict = run.verdict()
    if run.knn and run.untrained is not None and run.steps:
        score = (
            f"its nearest neighbours find the class of {run.knn[-1][1]:.1%} of the images, "
            f"{_gain(run, 'knn', run.knn[-1][1], run.untrained)}"
        )
    elif run.pairs and run.steps:
        score = _retrieval(run)
    elif (found := run.curve(INSTANCE)) and (before := run.before(INSTANCE)) is not None and run.steps:
        score = (
            f"an augmented view of a held-out image finds its own image first in {found[-1][1]:.1%} of the cases, "
            f"{_gain(run, INSTANCE, found[-1][1], before)}"
        )
    elif run.metrics:
        score = "there is no kNN score, since the data has no labels or nobody asked for one"
    else:
        score = "nothing has been measured yet"
    unknown = "too little has been measured to call it healthy or not"
    health = unknown if verdict is None else HEALTH.get(verdict.word, verdict.word)
    views = run.view_health
    if len(set(views.values())) > 1:
        health += f" (by view: {', '.join(f'{view} {word}' for view, word in views.items())})"
    unfinished = "" if run.finished else "Not finished. "
    after = f"After {_plural(run.epochs, 'epoch')} ({counted(run.steps, 'step')}, {duration(run.seconds)})"
    return f"{unfinished}{after} {score}; {health}."


def _gain(run: RunRecord, name: str, after: float, start: float) -> str:
    """Writes a score before training, with random weights where the run began with others, and the gains over both."""
    points, random = signed_points(after, start, run.gain_error(name)), run.random(name)
    if random is None:
        return f"{start:.1%} before training ({points} points)"
    over = signed_points(after, random, run.gain_error(name, over_random=True))
    none = "" if after > start or run.steps < FEW_STEPS else ": no gain over those"
    weights = f"{start:.1%} with the weights that it started from ({points} points{none})"
    return f"{weights} and {random:.1%} untrained ({over} points)"


def _retrieval(run: RunRecord) -> str:
    """Writes how often one view of a sample finds another, the mean over all pairs of views."""
    found = [run.recalls(*pair)[0] for pair in run.pairs]
    before = [each.untrained for each in found if each.untrained is not None]
    chance = [each.chance for each in found if each.chance is not None]
    against = [f"{mean(before):.1%} before training"] if before else []
    against += [f"{mean(chance):.1%} by chance"] if chance else []
    said = f"a sample in one view finds itself first in another in {mean([each.last for each in found]):.1%} of cases"
    return ", ".join([said, *against])


def _one(run: RunRecord) -> Child:
    command = f"manyview pretrain --recipe {shlex.quote(str(run.folder / 'config.yaml'))} --out runs/again"
    return [
        tag("p", summary(run), class_="summary"),
        tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(run)], class_="facts"),
        _verdict(run),
        tag("p", "To run it again:", class_="fine"),
        copyable(command, "the command"),
    ]


def _several(runs: Sequence[RunRecord], ranking: str | None) -> Child:
    names = [tag("strong", run.name, class_=f"name {run.colour_class}") for run in runs]
    folders = [tag("code", "/".join(run.folder.parts[-2:])) for run in runs]
    summaries = [(tag("br"), summary(run)) for run in runs]
    items = [tag("li", name, " ", *rest) for name, *rest in zip(names, folders, summaries, strict=True)]
    return [tag("p", ranking or _ranking(runs), class_="summary"), tag("ul", items, class_="runs")]


def _ranking(runs: Sequence[RunRecord]) -> str:
    """Writes the runs' final scores, the highest first; runs that differ by their seed alone together."""
    ends: dict[int, list[float]] = {}
    for run in runs:
        if run.knn:
            ends.setdefault(run.colour, []).append(run.knn[-1][1])
    names = {run.colour: run.name.partition(" seed ")[0] for run in runs}
    ordered = sorted(ends.items(), key=lambda end: -sum(end[1]) / len(end[1]))
    scores = ", ".join(f"{names[colour]} {_mean(values)}" for colour, values in ordered[:NAMED_RUNS])
    return f"{len(runs)} runs side by side." + (f" kNN at the end: {scores}." if scores else "")


def _mean(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1%}"
    extent = f"{100 * min(values):.1f} to {100 * max(values):.1f}"
    return f"{sum(values) / len(values):.1%} ({len(values)} seeds, {extent})"


def _verdict(run: RunRecord) -> Html | None:
    verdict = run.verdict()
    if verdict is None:
        return None
    kind, sign = LEVELS[verdict.level]
    text = verdict.text[:1].upper() + verdict.text[1:]
    return tag("p", tag("span", sign, class_="sign", aria_hidden="true"), text, class_=f"verdict {kind}")


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    config = run.config
    facts = [
        ("method", run.method),
        ("data", run.data),
        ("encoder", str(config.encoder["name"])),
        *([("views", ", ".join(config.views))] if config.views else []),
        ("augmentation", f"{config.augmentation['name']}, {config.augmentation['size']} px"),
        ("batch", f"{config.batch_size}"),
        ("trained", f"{_plural(run.epochs, 'epoch')}, {counted(run.steps, 'step')}"),
        ("time", duration(run.seconds)),
    ]
    if run.knn and run.untrained is not None:
        facts.insert(0, ("kNN", f"{run.untrained:.1%} \N{RIGHTWARDS ARROW} {run.knn[-1][1]:.1%}"))
    return facts


def _plural(count: float, word: str) -> str:
    return f"{count:.3g} {word}" + ("" if round(count, 2) == 1 else "s")


def settings(runs: Sequence[RunRecord]) -> Html:
    lead = (
        "Saved as config.yaml, this runs the job again: ",
        tag("code", "manyview pretrain --recipe config.yaml --out runs/again"),
    )
    titles = ["config.yaml" if len(runs) == 1 else f"config.yaml of {run.name}" for run in runs]
    files = [
        tag("details", tag("summary", title), copyable(to_yaml(run.config), title))
        for run, title in zip(runs, titles, strict=True)
    ]
    return section("settings", "Settings", lead, _differing(runs) if len(runs) > 1 else None, files)


def _differing(runs: Sequence[RunRecord]) -> Child:
    """Makes a table of the settings in which runs differ."""
    values = [{key: value for key, value in run.config.flat().items() if key not in RUNTIME_KEYS} for run in runs]
    keys = dict.fromkeys(key for each in values for key in each)
    differing = [key for key in keys if len({repr(each.get(key)) for each in values}) > 1]
    if not differing:
        return tag("p", "All runs have the same settings.", class_="fine")
    names = [tag("th", run.name, scope="col", class_=f"name {run.colour_class}") for run in runs]
    texts = {key: [DASH if each.get(key) is None else str(each[key]) for each in values] for key in differing}
    rows = [(tag("th", key, scope="row"), [tag("td", text) for text in texts[key]]) for key in differing]
    return table("Settings that differ", (tag("th", "setting", scope="col"), names), rows)
