"""The section on one query: the weights of its positives and negatives (CACR's Fig. 6) and their positions (Fig. 7)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image

from manyview.data.visible import to_rgb
from manyview.diagnose import ContrastWeights, contrast_weights, neighbourhood
from manyview.diagnose.negatives import T_NEG
from manyview.embeddings.view_embeddings import Snapshot, ViewEmbeddings
from manyview.report.html import Html, figure, tag, verbatim
from manyview.report.images import ThumbnailSheet, thumbnail_sheet
from manyview.report.run_embeddings import RunEmbeddings

QUERIES = 2
NEGATIVES = 4  # strongest and weakest ones, as in the paper
FIRST_SHEET = 100  # sheets of thumbnails are numbered from here, so that they differ from the map's
SHEET_BYTES = 150_000
RADIUS = 10.0  # of what is shown around the query, as in the paper
HALF, EDGE = 190, 8  # pixels


def weights(embedded: RunEmbeddings, number: int, name: str) -> Html:
    """Shows queries with their positives and negatives as pictures with their weights."""
    views = embedded.snapshots[-1].embeddings
    t_pos, t_neg = embedded.loss_option("t_pos", 1.0), embedded.loss_option("t_neg", T_NEG)
    found = [_weights(views, query, t_pos, t_neg) for query in range(QUERIES)]
    pictures = [picture for query, each in enumerate(found) for picture in _pictures(views, query, each)]
    sheet, a_query = thumbnail_sheet(pictures, max_bytes=SHEET_BYTES), len(pictures) // QUERIES
    rows = [_row(sheet, FIRST_SHEET + number, a_query * query, each) for query, each in enumerate(found)]
    caption = (
        f"How hard a query pulls at its positives (t\u207a = {t_pos:g}) and pushes each of {len(views.vectors) - 1} "
        f"negatives (t\u207b = {t_neg:g}), in percent. The strongest negatives should look like the query, the weakest "
        "should not."
    )
    drawn = verbatim("style", sheet.style(FIRST_SHEET + number)), rows
    return figure(f"Weights of positives and negatives{name}", drawn, caption, source="CACR, Fig. 6 (Eq. 3 and 4)")


def neighbourhoods(embedded: RunEmbeddings, name: str) -> Html:
    """Draws t-SNE around a query at some snapshots of a run."""
    snapshots, t_neg = embedded.few_snapshots, embedded.loss_option("t_neg", T_NEG)
    caption = (
        "t-SNE of one query, the square in the middle, its four positives in colour and the other images in grey. "
        f"Positives should come to lie at the query, the others around it. The dashed circle has the radius t\u207b = "
        f"{t_neg:g}. "
    )
    hint = (
        ["For epochs in between, train with ", tag("code", "--snapshots 1,5,20"), "."] if len(snapshots) < 3 else None
    )
    drawn = tag("div", [_plane(snapshot, t_neg) for snapshot in snapshots], class_="planes")
    return figure(f"A query's neighbourhood{name}", drawn, [caption, hint], source="CACR, Fig. 7")


def _weights(views: ViewEmbeddings, query: int, t_pos: float, t_neg: float) -> ContrastWeights:
    """Takes the first copy of an image as query, its others as positives, the first of other images as negatives."""
    vectors = views.vectors
    negatives = torch.cat([vectors[:query, 0], vectors[query + 1 :, 0]])
    return contrast_weights(vectors[query, 0], vectors[query, 1:], negatives, t_pos=t_pos, t_neg=t_neg, most=NEGATIVES)


def _pictures(views: ViewEmbeddings, query: int, found: ContrastWeights) -> list[Image.Image]:
    """Returns the query and its positives as they were augmented, then the negatives whole."""
    augmented = [to_rgb(views.picture(query, copy)) for copy in range(views.vectors.shape[1])]
    rows = [row + (row >= query) for row in (*found.strongest.tolist(), *found.weakest.tolist())]
    samples = [views.data[int(views.index[row])] for row in rows]
    seen = next(iter((views.pipeline.views or {}).values()), None)
    modality = views.data.modalities[0] if seen is None else seen.modality
    return augmented + [to_rgb(sample.modalities[modality]) for sample in samples]


def _row(sheet: ThumbnailSheet, sheet_number: int, first: int, found: ContrastWeights) -> Html:
    strongest, weakest = (found.negatives[rows].tolist() for rows in (found.strongest, found.weakest))
    groups: dict[str, Sequence[float | None]] = {
        "query": [None], "positives": found.positives.tolist(), "strongest negatives": strongest,
        "weakest negatives": weakest,
    }  # fmt: skip
    parts, number = [], first
    for title, numbers in groups.items():
        cells = [_weighted(sheet, number + turn, sheet_number, title, weight) for turn, weight in enumerate(numbers)]
        parts.append(tag("div", tag("span", title, class_="fine"), tag("div", cells, class_="thumbs")))
        number += len(numbers)
    return tag("div", parts, class_="weights")


def _weighted(sheet: ThumbnailSheet, number: int, sheet_number: int, title: str, weight: float | None) -> Html:
    caption = title if weight is None else f"{title}, weight {weight:.2%}"
    below = None if weight is None else tag("small", f"{100 * weight:.2g}")
    return tag("span", sheet.thumbnail(number, sheet_number, caption), below, class_="weighed")


def _plane(snapshot: Snapshot, t_neg: float) -> Html:
    vectors = snapshot.embeddings.vectors
    found = neighbourhood(vectors[0, 0], vectors[0, 1:], vectors[1:, 0])
    reach = max(RADIUS, 1.1 * float(found.positives.abs().max()))
    near = [place for place in found.negatives.tolist() if max(map(abs, place)) <= reach]
    dots = [_dot(place, reach, "negative", 4.5) for place in near]
    dots += [_dot(place, reach, "positive", 7.0) for place in found.positives.tolist()]
    query = tag("rect", x=HALF - 7, y=HALF - 7, width=14, height=14, class_="query")
    name = f"epoch {snapshot.epoch}" if snapshot.epoch else "untrained"
    description = f"{name}: {len(found.positives)} positives and {len(near)} negatives around the query"
    circle = tag("circle", cx=HALF, cy=HALF, r=_pixels(t_neg, reach), class_="radius")
    inside = tag("text", name, x=12, y=24, class_="when"), circle, dots, query
    return tag("svg", inside, viewBox=f"0 0 {2 * HALF} {2 * HALF}", class_="plane", role="img", aria_label=description)


def _dot(place: Sequence[float], reach: float, kind: str, radius: float) -> Html:
    x, y = (round(HALF + _pixels(value, reach), 1) for value in place)
    return tag("circle", cx=x, cy=y, r=radius, class_=kind)


def _pixels(length: float, reach: float) -> float:
    """Scales a length of the map to pixels, where `reach` is shown to each side of the query."""
    return round(length / reach * (HALF - EDGE), 1)
