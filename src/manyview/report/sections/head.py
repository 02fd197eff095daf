"""What a page says first: what was done, and what has come of it, in one sentence."""

from __future__ import annotations

import platform
import shlex
import time
from collections.abc import Sequence

import torch

from manyview import __version__
from manyview.report.html import Child, Html, tag
from manyview.report.parts import copied
from manyview.report.run_record import Told, short

STANDING = 6  # that are named in the first sentence
LEVELS = {"healthy": ("good", "\N{CHECK MARK}"), "warning": ("warn", "!"), "bad": ("bad", "\N{MULTIPLICATION SIGN}")}


def head(runs: Sequence[Told], standing: str | None = None) -> Html:
    """standing: where several stand, if more is known of them than these runs tell."""
    title = _title(runs)
    body = _one(runs[0]) if len(runs) == 1 else _several(runs, standing or _standing(runs))
    written = f"manyview {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    begun = f"Begun on {runs[0].date}. " if len(runs) == 1 else ""
    foot = tag("p", f"{begun}Written on {time.strftime('%d %B %Y, %H:%M')} with {written}.", class_="fine")
    return tag("header", tag("p", "manyview report", class_="eyebrow"), tag("h1", title), body, foot)


def title(runs: Sequence[Told]) -> str:
    """For the browser's tab."""
    return f"{_title(runs)} \N{MIDDLE DOT} manyview"


def summary(run: Told) -> str:
    """What has come of a run, in one sentence."""
    verdict, how = run.verdict(), _how_far(run)
    if run.knn and run.untrained is not None and run.steps:
        gain = 100 * (run.knn[-1][1] - run.untrained)
        score = (
            f"its nearest neighbours find the class of {run.knn[-1][1]:.1%} of the images, {run.untrained:.1%} before "
            f"training ({_signed(gain)} points)"
        )
    elif run.lines:
        score = "there is no kNN score, since the data has no labels or nobody asked for one"
    else:
        score = "nothing has been measured yet"
    health = _health(verdict.word) if verdict is not None else "too little has been measured to call it healthy or not"
    return f"{how} {score}; {health}."


def _title(runs: Sequence[Told]) -> str:
    data = list(dict.fromkeys(run.data for run in runs))
    methods = list(dict.fromkeys(str(run.config.method["name"]) for run in runs))
    shown = ", ".join(methods[:4]) + (", ..." if len(methods) > 4 else "")
    many = f"{len(runs)} runs: {shown}" if len(runs) > 1 else shown
    return f"{many} on {' and '.join(data[:2])}{' and others' if len(data) > 2 else ''}"


def _one(run: Told) -> Child:
    verdict = run.verdict()
    again = f"manyview pretrain --recipe {shlex.quote(str(run.folder / 'config.yaml'))} --out runs/again"
    return [
        tag("p", summary(run), class_="summary"),
        tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(run)], class_="facts"),
        _verdict(run) if verdict is not None else None,
        tag("p", "To run it again:", class_="fine"),
        copied(again, "the command"),
    ]


def _several(runs: Sequence[Told], standing: str) -> Child:
    return [
        tag("p", standing, class_="summary"),
        tag("ul", [_item(run) for run in runs], class_="runs"),
    ]


def _standing(runs: Sequence[Told]) -> str:
    """Where they ended, the highest first; runs that differ by their seed alone together."""
    ends: dict[int, list[float]] = {}
    for run in runs:
        if run.knn:
            ends.setdefault(run.colour, []).append(run.knn[-1][1])
    names = {run.colour: run.name.partition(" seed ")[0] for run in runs}
    ordered = sorted(ends.items(), key=lambda end: -sum(end[1]) / len(end[1]))
    told = ", ".join(f"{names[colour]} {_mean(values)}" for colour, values in ordered[:STANDING])
    return f"{len(runs)} runs side by side." + (f" kNN at the end: {told}." if told else "")


def _mean(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.1%}"
    spread = f"{100 * min(values):.1f} to {100 * max(values):.1f}"
    return f"{sum(values) / len(values):.1%} ({len(values)} seeds, {spread})"


def _item(run: Told) -> Html:
    name = tag("strong", run.name, class_=f"name {run.tint}")
    return tag("li", name, " ", tag("code", short(run.folder)), tag("br"), summary(run))


def _verdict(run: Told) -> Html:
    verdict = run.verdict()
    assert verdict is not None
    kind, sign = LEVELS[verdict.level]
    text = verdict.text[:1].upper() + verdict.text[1:]
    return tag("p", tag("span", sign, class_="sign", aria_hidden="true"), text, class_=f"verdict {kind}")


def _facts(run: Told) -> list[tuple[str, str]]:
    config = run.config
    found = [
        ("method", str(config.method["name"])),
        ("data", run.data),
        ("encoder", str(config.encoder["name"])),
        ("augmentation", f"{config.augmentation['name']}, {config.augmentation['size']} px"),
        ("batch", f"{config.batch_size}"),
        ("trained", f"{_plural(run.epochs, 'epoch')}, {run.steps:,} steps"),
        ("time", duration(run.seconds)),
    ]
    if run.knn and run.untrained is not None:
        scores = f"{run.untrained:.1%} \N{RIGHTWARDS ARROW} {run.knn[-1][1]:.1%}"
        found.insert(0, ("kNN", scores))
    return found


def duration(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 5 min"""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 and whole < 600 else "")
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _how_far(run: Told) -> str:
    done = f"After {_plural(run.epochs, 'epoch')} ({run.steps:,} steps, {duration(run.seconds)})"
    return done if run.finished else f"Not finished. {done}"


def _plural(count: float, word: str) -> str:
    return f"{count:.3g} {word}" + ("" if round(count, 2) == 1 else "s")


def _health(word: str) -> str:
    return {
        "healthy": "the run is healthy",
        "starting": "it is too early to tell whether the run is healthy",
        "diverging": "the loss is running away",
        "broken data": "part of the data is broken",
        "collapsing": "all images are becoming the same vector",
        "collapsed dimensions": "the vectors use only a few of their dimensions",
        "saturated": "little gradient is left, for the positives are told apart already",
        "not learning": "its neighbours are no better than before training",
    }.get(word, word)


def _signed(points: float) -> str:
    return f"{'+' if points >= 0 else chr(0x2212)}{abs(points):.1f}"
