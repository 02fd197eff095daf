"""The page of a folder of transfers: scores beside the baselines', and predictions."""

from __future__ import annotations

from pathlib import Path

from manyview.core.atomic import atomic_write, check_own, naming_setting
from manyview.core.errors import UserError
from manyview.report.document import document, is_page, script
from manyview.report.html import tag, verbatim
from manyview.report.sections.transfers import transfers
from manyview.training.run import REPORT


def write_transfer_page(folder: Path, name: str) -> Path:
    """Writes the page about the results in a folder into it, whole or not at all, and returns its path."""
    path = folder / REPORT
    check_own("out", path, is_page)
    shown = transfers([(name, folder)])
    if shown is None:
        raise UserError("out", f"{folder} has no results to show")
    header = tag("header", tag("p", "transfer", class_="eyebrow"), tag("h1", name))
    body = tag("body", tag("main", header, shown), verbatim("script", script()))
    with naming_setting("out", path), atomic_write(path) as draft:
        draft.write_text(document(f"{name} \N{MIDDLE DOT} manyview", body), encoding="utf-8", errors="replace")
    return path
