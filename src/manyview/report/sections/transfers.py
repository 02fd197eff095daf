"""The section on transfers of an encoder: scores of dense tasks beside the baselines', and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PIL import Image

from manyview.evaluate.results import Result, read
from manyview.report.html import DASH, Child, Html, attempted, figure, section, signed_points, table, tag
from manyview.report.jpeg import jpeg_uri
from manyview.transfer.records import EndedTraining, trainings

KINDS = ("trained", "untrained", "supervised")
MOST = 6  # results, the newest
MAX_ROWS = 24  # scores of a table; the others are folded below it
MAX_PICTURES = 12  # of a page
WIDEST = 1056  # pixels of a picture
LEAD = (
    "Tasks of whole pictures, trained on top of the encoder. In percent; beside a score stands the gain over the "
    "untrained network with the same settings, in points."
)
CAPTIONS = {
    "segment": "Test pictures as the encoder sees them, their masks, and below these what was predicted. Each class "
    "has a colour of its own; ignored pixels are dark.",
}
OBJECTS = "Test images with all that was found with a score of 0.5 or more."


def transfers(folders: Sequence[tuple[str, Path]]) -> Html | None:
    """Shows the results of some folders of transfers, by the name of their model; None where there are none."""
    found = [(name, folder, result) for name, folder in folders for result in read(folder)]
    found = sorted(found, key=lambda each: each[2].when)[-MOST:]
    if not found:
        return None
    several = len({name for name, _, _ in found}) > 1
    room = MAX_PICTURES // len(found)
    parts = [
        attempted(f"The transfer to {result.data.get('name', '?')}", partial(_of_result, *each, room, several))
        for each in found
        for result in each[2:]
    ]
    return section("transfers", "Transfer", LEAD, parts)


def _of_result(name: str, folder: Path, result: Result, room: int, named: bool) -> Child:
    data, model = result.data, result.model
    kept = "held out" if data.get("held_out") else "in its test split"
    title = f"{result.protocol}: {data.get('name', '?')}" + (f", {name}" if named else "")
    counts = f"{data['train']:,} training images, {data['test']:,} {kept}, {len(data['classes'])} classes"
    given = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in result.settings.items() if value is not None)
    about = f"{model.get('encoder', '?')} at {model.get('size', '?')} px, seed {result.seed}; {counts}; {given}"
    shown = [each for each in trainings(folder, result.key) if each.pictures is not None]
    shown.sort(key=lambda each: (each.about.part, KINDS.index(each.about.kind) if each.about.kind in KINDS else 9))
    pictures = [_pictures(each, result.protocol) for each in shown[: max(1, room)]]
    return [tag("h3", title), tag("p", about, class_="fine"), _scores(result), tag("div", pictures, class_="wide")]


def _scores(result: Result) -> Child:
    """Makes a table of all scores; those beyond the length of a page are folded."""
    first = "trained" if result.model.get("trained", True) else "untrained"
    by_kind = {"untrained": result.untrained, "supervised": result.supervised, first: result.scores}
    kinds = [kind for kind in KINDS if by_kind.get(kind) is not None]
    columns = tag("th", "score", scope="col"), [tag("th", kind, scope="col", class_="number") for kind in kinds]
    before = result.untrained or {}

    def row(name: str) -> Child:
        cells = []
        for kind in kinds:
            value = (by_kind[kind] or {}).get(name)
            gain = kind == "trained" and value is not None and name in before
            more = tag("small", f" {signed_points(value, before[name])}") if gain and value is not None else None
            cells.append(tag("td", DASH if value is None else f"{100 * value:.1f}", more, class_="number"))
        return [tag("th", name, scope="row", class_="what"), cells]

    names = list(result.scores)
    made = [table("Scores of a transfer", columns, [row(name) for name in names[:MAX_ROWS]])]
    if names[MAX_ROWS:]:
        rest = table("Further scores of a transfer", columns, [row(name) for name in names[MAX_ROWS:]])
        made.append(tag("details", tag("summary", f"{len(names) - MAX_ROWS} more scores"), rest))
    return made


def _pictures(training: EndedTraining, task: str) -> Html:
    assert training.pictures is not None
    title = " ".join(filter(None, [training.about.part, training.about.kind]))
    caption = CAPTIONS.get(task, OBJECTS)
    with Image.open(training.pictures) as image:
        uri = jpeg_uri(image, widest=WIDEST)
    drawn = tag("img", src=uri, alt=f"Predictions, {title}", style="max-width:100%;height:auto")
    return figure(f"Predictions, {title}", drawn, caption)
