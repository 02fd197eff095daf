"""What a query pulls at and pushes away, as pictures with their weights: CACR's Fig. 6."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyview.diagnose import ContrastWeights, contrast_weights
from manyview.diagnose.entropy import T_NEG
from manyview.embeddings.view_embeddings import ViewEmbeddings
from manyview.report.html import Html, tag, verbatim
from manyview.report.images import Sheet, sheet, visible
from manyview.report.parts import figure, sheet_style, thumbnail
from manyview.report.run_embeddings import Seen

QUERIES = 2
MOST = 4  # strongest and weakest negatives, as in the paper
FIRST = 100  # sheets of thumbnails are numbered from here, so that they differ from the map's
ROOM = 150_000  # bytes of such a sheet


def weights(seen: Seen, number: int, name: str) -> Html:
    looks, loss = seen.moments[-1].looks, seen.told.config.part("loss") or {}
    t_pos, t_neg = float(loss.get("t_pos") or 1.0), float(loss.get("t_neg") or T_NEG)
    found = [_contrasted(looks, query, t_pos, t_neg) for query in range(QUERIES)]
    pictures = [picture for query, each in enumerate(found) for picture in _pictures(looks, query, each)]
    shown, each = sheet(pictures, room=ROOM), len(pictures) // QUERIES
    rows = [_row(shown, FIRST + number, each * query, of) for query, of in enumerate(found)]
    caption = (
        f"How hard a query pulls at its positives (t\u207a = {t_pos:g}) and pushes each of {len(looks.vectors) - 1} "
        f"negatives (t\u207b = {t_neg:g}), in percent. The hardest pushed should look like the query, the least pushed "
        "should not."
    )
    drawn = verbatim("style", sheet_style(shown, FIRST + number)), rows
    return figure(f"Weights of positives and negatives{name}", drawn, caption, source="CACR, Fig. 6 (Eq. 3 and 4)")


def _contrasted(looks: ViewEmbeddings, query: int, t_pos: float, t_neg: float) -> ContrastWeights:
    """Negatives are the same look at all other images."""
    vectors = looks.vectors
    others = torch.cat([vectors[:query, 0], vectors[query + 1 :, 0]])
    return contrast_weights(vectors[query, 0], vectors[query, 1:], others, t_pos=t_pos, t_neg=t_neg, most=MOST)


def _pictures(looks: ViewEmbeddings, query: int, found: ContrastWeights) -> list[Tensor]:
    """The query and its positives as they were seen, then the negatives whole."""
    seen = [visible(looks.picture(query, look)) for look in range(looks.vectors.shape[1])]
    rows = [row + (row >= query) for row in (*found.strongest.tolist(), *found.weakest.tolist())]
    return seen + [_whole(looks, row) for row in rows]


def _whole(looks: ViewEmbeddings, row: int) -> Tensor:
    return visible(looks.data[int(looks.index[row])].modalities[looks.data.modalities[0]])


def _row(shown: Sheet, place: int, first: int, found: ContrastWeights) -> Html:
    strongest, weakest = (found.negatives[rows].tolist() for rows in (found.strongest, found.weakest))
    groups = {
        "query": [None], "positives": found.positives.tolist(), "strongest negatives": strongest,
        "weakest negatives": weakest,
    }  # fmt: skip
    parts, at = [], first
    for title, numbers in groups.items():
        parts.append(_group(shown, place, title, at, numbers))
        at += len(numbers)
    return tag("div", parts, class_="weights")


def _group(shown: Sheet, place: int, title: str, first: int, numbers: Sequence[float | None]) -> Html:
    cells = [_weighed(shown, place, first + turn, title, weight) for turn, weight in enumerate(numbers)]
    return tag("div", tag("span", title, class_="fine"), tag("div", cells, class_="thumbs"))


def _weighed(shown: Sheet, place: int, number: int, title: str, weight: float | None) -> Html:
    words = title if weight is None else f"{title}, weight {weight:.2%}"
    below = None if weight is None else tag("small", f"{100 * weight:.2g}")
    return tag("span", thumbnail(shown, number, place, words), below, class_="weighed")
