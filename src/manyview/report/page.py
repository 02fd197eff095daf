"""One self-contained page about one run or several: no network, one file, bounded whatever the data."""

from __future__ import annotations

import math
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from manyview.comparison.outcome import Outcome
from manyview.core.atomic import atomic_write, check_own, check_writable, naming_setting
from manyview.core.errors import UserError
from manyview.core.text import counted, reason
from manyview.data import Dataset
from manyview.report.document import document, is_page, links, script
from manyview.report.html import Child, attempted, data, tag, verbatim
from manyview.report.run_embeddings import MAX_IMAGES, EmbeddedRuns, embed_runs
from manyview.report.run_record import RunRecord, read_records
from manyview.report.sections.across import across
from manyview.report.sections.curves import curves
from manyview.report.sections.diagnostics import diagnostics
from manyview.report.sections.map import maps, script_data
from manyview.report.sections.neighbours import classes, gallery
from manyview.report.sections.overview import header, settings, title
from manyview.report.sections.places import places
from manyview.report.sections.samples import samples
from manyview.report.sections.scores import comparison, ranking, scores
from manyview.report.sections.transfers import transfers
from manyview.training.failures import Interrupted
from manyview.training.run import CONFIG, REPORT, Run
from manyview.transfer.records import HOME

IMAGES, MIN_IMAGES = 400, 16  # of a map
MAX_SPREAD = 1_000_000  # images whose augmented copies are compared: a figure needs no more
SECONDS, MOST_SECONDS = 8.0, 600.0  # of a page at the end of training, at least and at most
SHARE = 0.05  # of the run's training time that its page may take, within these
Lacking = Callable[[float], object]
LINKS = {
    "comparison": "Comparison", "scores": "Scores", "transfers": "Transfer", "across": "Across views",
    "samples": "Samples", "map": "Map", "neighbours": "Neighbours", "places": "Places", "curves": "Curves",
    "diagnostics": "Diagnostics", "classes": "Classes", "settings": "Settings",
}  # fmt: skip


def write(
    runs: Sequence[Run],
    path: str | os.PathLike[str],
    *,
    images: int = IMAGES,
    seconds: float = SECONDS,
    own: Dataset | None = None,
    compared: Outcome | None = None,
    spread_images: int | None = None,
    lacking: Lacking = lambda seconds: None,
) -> Path:
    """Writes the page about these runs to a file, whole or not at all, and returns the file's path.

    images         on the map, at most
    seconds        that embedding the images of one run may take, about: with a slow encoder the page shows fewer
    own            the data set of runs on data that the caller passed
    compared       the outcome of a comparison that these runs are from
    spread_images  training images of which 32 augmented copies each are compared (JCL's Fig. 3 has 32,768), however
                   long that takes; None: as many as the time allows
    lacking        is called with the seconds that each figure would need for which there is too little time

    An existing file is overwritten only if it is such a page, and a link is not followed. What cannot be shown (no
    labels, no checkpoint, data that has moved) is left out, and the page says why.

    >>> write([run], run.folder / "report.html")
    """
    path = Path(path)
    check_writable("out", path.parent, path)
    check_own("out", path, is_page)
    text = page(
        runs, images=images, seconds=seconds, own=own, compared=compared, spread_images=spread_images, lacking=lacking
    )
    with naming_setting("out", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        check_own("out", path, is_page)  # once more: a page takes a minute
        with atomic_write(path) as draft:
            draft.write_text(text, encoding="utf-8", errors="replace")
    return path


def after_training(
    ended: Run | Outcome,
    *,
    own: Dataset | None = None,
    say: Callable[[str], object],
    warn: Callable[[str], object],
    seconds: float | None = None,
) -> None:
    """Writes the page of a run or comparison that has ended into its folder; reports that, or an error, in one line.

    seconds  that embedding images may take, about; by default `SHARE` of the training time

    What there is too little time for is left out, with the command that completes the page. Training collects signals;
    here nothing is left to save, and Ctrl-C stops at once again.
    """
    lacking: list[float] = []
    try:
        compared = ended if isinstance(ended, Outcome) else None
        runs = ended.runs() if isinstance(ended, Outcome) else [ended]
        with _interruptible():
            share = min(max(SECONDS, SHARE * _trained(runs)), MOST_SECONDS)
            time = share if seconds is None else seconds
            written = write(
                runs, ended.folder / REPORT, own=own, compared=compared, seconds=time, lacking=lacking.append
            )
            say(f"report {written}")
        if lacking:
            whose = f", {SHARE:.0%} of the training's time (but {SECONDS:.0f} to {MOST_SECONDS:.0f} s)"
            figures = counted(len(lacking), "figure")
            told = f"{figures} would take longer than {time:.0f} s{whose}"
            if seconds is not None:
                told = f"{figures} left out to end on time"
            command = f"manyview report {shlex.quote(str(ended.folder))} --seconds {math.ceil(max(lacking))}"
            say(f"{told}; to complete the report: {command}")
    except (Exception, KeyboardInterrupt) as error:  # the run itself has ended well, whatever becomes of its page
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else reason(error)
        warn(f"no report was written: {why}; try `manyview report {shlex.quote(str(ended.folder))}`")
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(signal.SIGINT) from None


def _trained(runs: Sequence[Run]) -> float:
    """Returns the longest training time of some runs, in seconds."""
    return max((float(line.get("seconds") or 0) for run in runs for line in run.metrics[-1:]), default=0.0)


@contextmanager
def _interruptible() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def page(
    runs: Sequence[Run],
    *,
    images: int = IMAGES,
    seconds: float = SECONDS,
    own: Dataset | None = None,
    compared: Outcome | None = None,
    spread_images: int | None = None,
    lacking: Lacking = lambda seconds: None,
) -> str:
    """Writes the HTML of the page."""
    if not runs:
        raise UserError("runs", "expected at least one run's folder")
    for run in runs:
        if not (run.folder / CONFIG).is_file():
            raise UserError("run", f"{run.folder} is no run's folder, it has no {CONFIG}")
    if not MIN_IMAGES <= images <= MAX_IMAGES:
        raise UserError("images", f"expected {MIN_IMAGES} to {MAX_IMAGES}, got {images}")
    if spread_images is not None and not 2 <= spread_images <= MAX_SPREAD:
        raise UserError("spread_images", f"expected 2 to {MAX_SPREAD:,}, got {spread_images}")
    records = read_records(runs)
    with torch.random.fork_rng():  # an encoder is drawn before it is loaded; the caller's random numbers stay
        embedded = embed_runs(records, images, seconds, own, spread_images, lacking)
        main = tag("main", _sections(records, embedded, compared))
    nav = links([(name, text) for name, text in LINKS.items() if f'id="{name}"' in main])
    tip = tag("div", id="tip", hidden=True, aria_hidden="true")
    body = tag("body", nav, main, tip, data("page-data", script_data(embedded)), verbatim("script", script()))
    styles = [images.sheet.style(number) for number, images in embedded.sheets.items()]
    return document(f"{title(records)} \N{MIDDLE DOT} manyview", body, styles)


def _sections(records: Sequence[RunRecord], embedded: EmbeddedRuns, compared: Outcome | None) -> Child:
    return [
        attempted("The summary", lambda: header(records, None if compared is None else ranking(compared))),
        None if compared is None else attempted("The comparison", lambda: comparison(compared)),
        attempted("Scores", lambda: scores(records, embedded.data)),
        attempted("Transfer", lambda: transfers([(each.name, each.run.folder / HOME) for each in records])),
        attempted("Retrieval across views", lambda: across(records, embedded)),
        attempted("Samples", lambda: samples(embedded)),
        attempted("The map", lambda: maps(embedded)),
        attempted("Nearest neighbours", lambda: gallery(embedded)),
        attempted("Features by place", lambda: places(embedded)),
        attempted("Curves", lambda: curves(records)),
        attempted("Diagnostics", lambda: diagnostics(records, embedded)),
        attempted("Classes", lambda: classes(embedded)),
        settings(records),
    ]
