"""All settings, so that a page alone is enough to do it again."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.config.config import RUNTIME_KEYS
from manyview.config.recipes import to_yaml
from manyview.report.html import Child, Html, tag
from manyview.report.parts import DASH, copyable, scrollable, section
from manyview.report.run_record import RunRecord


def settings(runs: Sequence[RunRecord]) -> Html:
    lead = (
        "Saved as config.yaml, this runs the job again: ",
        tag("code", "manyview pretrain --recipe config.yaml --out runs/again"),
    )
    files = [_file(run, len(runs) == 1) for run in runs]
    return section("settings", "Settings", lead, _differing(runs) if len(runs) > 1 else None, files)


def _file(run: RunRecord, alone: bool) -> Html:
    title = "config.yaml" if alone else f"config.yaml of {run.name}"
    return tag("details", tag("summary", title), copyable(to_yaml(run.config), title))


def _differing(runs: Sequence[RunRecord]) -> Child:
    """Makes a table of the settings in which runs differ."""
    values = [{key: value for key, value in run.config.flat().items() if key not in RUNTIME_KEYS} for run in runs]
    keys = dict.fromkeys(key for each in values for key in each)
    differing = [key for key in keys if len({repr(each.get(key)) for each in values}) > 1]
    if not differing:
        return tag("p", "All runs have the same settings.", class_="fine")
    names = [tag("th", run.name, scope="col", class_=f"name {run.colour_class}") for run in runs]
    body = [
        tag("tr", tag("th", key, scope="row"), [tag("td", _cell(each.get(key))) for each in values])
        for key in differing
    ]
    head = tag("thead", tag("tr", tag("th", "setting", scope="col"), names))
    return scrollable("Settings that differ", tag("table", head, tag("tbody", body)))


def _cell(value: object) -> str:
    return DASH if value is None else str(value)
