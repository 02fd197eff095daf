"""One self-contained page about one run or several: no network, one file, bounded whatever the data."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

import torch

from manyview.comparison.outcome import Outcome
from manyview.core.atomic import atomic_write, check_writable, naming_setting
from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.data import Dataset
from manyview.report import map as maps
from manyview.report.html import Html, data, tag, verbatim
from manyview.report.parts import attempted, sheet_style
from manyview.report.run_embeddings import MOST, Seen, seen
from manyview.report.run_record import Told, told
from manyview.report.sections.classes import classes
from manyview.report.sections.comparison import comparison, standing
from manyview.report.sections.curves import curves
from manyview.report.sections.gallery import gallery
from manyview.report.sections.head import head, title
from manyview.report.sections.scores import scores
from manyview.report.sections.settings import configs
from manyview.report.sections.why import why
from manyview.training.run import CONFIG, REPORT, Run

IMAGES = 400
FEWEST = 16  # images of a map
SECONDS = 8.0


def write(
    runs: Sequence[Run],
    path: str | os.PathLike[str],
    *,
    images: int = IMAGES,
    seconds: float = SECONDS,
    own: Dataset | None = None,
    compared: Outcome | None = None,
) -> Path:
    """Writes the page about these runs to a file, whole or not at all, and gives the file's path.

    images   that the map shows, at most
    seconds  that looking at the images of one run may take, about: a slow encoder is shown fewer
    own      the data set of runs on one's own
    compared what a comparison of which these are runs has come to

    What cannot be shown (no labels, no checkpoint, data that has moved) is left out, and the page says why.

    >>> write([run], run.folder / "report.html")
    """
    path = Path(path)
    check_writable("out", path.parent, path)
    text = page(runs, images=images, seconds=seconds, own=own, compared=compared)
    with naming_setting("out", path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with naming_setting("out", path), atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace")
    return path


def after_training(
    run: Run, *, own: Dataset | None = None, say: Callable[[str], object], warn: Callable[[str], object]
) -> None:
    """The page of a run that has just ended, in its folder, and one line about it; what goes wrong is that line."""
    try:
        say(f"report {write([run], run.folder / REPORT, own=own)}")
    except Exception as error:  # the run itself has ended well, whatever becomes of its page
        warn(f"no report was written: {reason(error)}; try `manyview report {run.folder}`")


def page(
    runs: Sequence[Run],
    *,
    images: int = IMAGES,
    seconds: float = SECONDS,
    own: Dataset | None = None,
    compared: Outcome | None = None,
) -> str:
    """The text of the page."""
    _check(runs, images)
    about = told(runs)
    with torch.random.fork_rng():  # an encoder is drawn before it is loaded, which is no business of who wants a page
        return _page(about, seen(about, images, seconds, own), compared)


def _page(about: Sequence[Told], looked: dict[str, Seen | str], compared: Outcome | None) -> str:
    body = [
        head(about, None if compared is None else standing(compared)),
        None if compared is None else attempted("The comparison", lambda: comparison(compared)),
        attempted("Scores", lambda: scores(about)),
        attempted("The map", lambda: maps.maps(looked)),
        attempted("Nearest neighbours", lambda: gallery(looked)),
        attempted("Curves", lambda: curves(about)),
        attempted("The figures", lambda: why(about, looked)),
        attempted("Classes", lambda: classes(looked)),
        configs(about),
    ]
    values = data("page-data", maps.for_script(looked))
    script = _file("script.js")
    main = tag("main", [part for part in body if part is not None])
    tip = tag("div", id="tip", hidden=True, aria_hidden="true")
    inside = _nav(main), main, tip, values, verbatim("script", script)
    document = tag("html", _head(title(about), _style(looked), script), tag("body", inside), lang="en")
    return f"<!doctype html>\n{document}\n"


def _nav(main: Html) -> Html:
    """Links to the sections that are there."""
    names = {
        "comparison": "Comparison", "scores": "Scores", "map": "Map", "neighbours": "Neighbours", "curves": "Curves",
        "why": "Why", "classes": "Classes", "settings": "Settings",
    }  # fmt: skip
    links = [tag("a", words, href=f"#{name}") for name, words in names.items() if f'id="{name}"' in main]
    return tag("nav", links, aria_label="Sections")


def _head(name: str, style: str, script: str) -> Html:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=f"{rules}; base-uri 'none'; form-action 'none'"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", name),
        verbatim("style", style),
    )


def _style(looked: dict[str, Seen | str]) -> str:
    sheets = {each.sheet: each.pictures.sheet for each in looked.values() if isinstance(each, Seen)}
    return "\n".join([_file("style.css"), *(sheet_style(sheet, number) for number, sheet in sheets.items())])


def _file(name: str) -> str:
    return (files("manyview.report") / name).read_text(encoding="utf-8")


def _check(runs: Sequence[Run], images: int) -> None:
    if not runs:
        raise UserError("runs", "expected at least one run's folder")
    for run in runs:
        if not (run.folder / CONFIG).is_file():
            raise UserError("run", f"{run.folder} is no run's folder, it has no {CONFIG}")
    if not FEWEST <= images <= MOST:
        raise UserError("images", f"expected {FEWEST} to {MOST}, got {images}")
