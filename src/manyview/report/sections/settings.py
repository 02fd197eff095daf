"""All settings, so that a page alone is enough to do it again."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.config.config import RUNTIME_KEYS
from manyview.report.html import Child, Html, tag
from manyview.report.parts import copied, scrolled, section
from manyview.report.run_record import Told, settings


def configs(runs: Sequence[Told]) -> Html:
    lead = (
        "Saved as config.yaml, this runs the job again: ",
        tag("code", "manyview pretrain --recipe config.yaml --out runs/again"),
    )
    files = [_file(run, len(runs) == 1) for run in runs]
    return section("settings", "Settings", lead, _compared(runs) if len(runs) > 1 else None, files)


def _file(run: Told, alone: bool) -> Html:
    title = "config.yaml" if alone else f"config.yaml of {run.name}"
    return tag("details", tag("summary", title), copied(settings(run), title))


def _compared(runs: Sequence[Told]) -> Child:
    """Only what differs."""
    values = [{key: value for key, value in run.config.flat().items() if key not in RUNTIME_KEYS} for run in runs]
    keys = dict.fromkeys(key for each in values for key in each)
    differing = [key for key in keys if len({repr(each.get(key)) for each in values}) > 1]
    if not differing:
        return tag("p", "All runs have the same settings.", class_="fine")
    names = [tag("th", run.name, scope="col", class_=f"name {run.tint}") for run in runs]
    body = [
        tag("tr", tag("th", key, scope="row"), [tag("td", _said(each.get(key))) for each in values])
        for key in differing
    ]
    head = tag("thead", tag("tr", tag("th", "setting", scope="col"), names))
    return scrolled("Settings that differ", tag("table", head, tag("tbody", body)))


def _said(value: object) -> str:
    return "\N{EN DASH}" if value is None else str(value)
