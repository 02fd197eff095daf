"""A query among its positives and negatives while it is learnt: CACR's Fig. 7."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.diagnose import neighbourhood
from manyview.embeddings.view_embeddings import Snapshot
from manyview.report.html import Html, tag
from manyview.report.parts import figure
from manyview.report.run_embeddings import Seen, some

RADIUS = 10.0  # of what is shown around the query, as in the paper
HALF, EDGE = 190, 8


def around(seen: Seen, name: str) -> Html:
    moments = some(seen.moments)
    caption = (
        "t-SNE of one query, the square in the middle, its four positives in colour and the other images in grey. "
        "Positives should come to lie at the query, the others around it. "
    )
    hint = ["For moments in between, train with ", tag("code", "--snapshots 1,5,20"), "."] if len(moments) < 3 else None
    drawn = tag("div", [_plane(moment) for moment in moments], class_="planes")
    return figure(f"A query's neighbourhood{name}", drawn, [caption, hint], source="CACR, Fig. 7")


def _plane(moment: Snapshot) -> Html:
    vectors = moment.looks.vectors
    found = neighbourhood(vectors[0, 0], vectors[0, 1:], vectors[1:, 0])
    reach = max(RADIUS, 1.1 * float(found.positives.abs().max()))
    near = [place for place in found.negatives.tolist() if max(map(abs, place)) <= reach]
    marks = [_dot(place, reach, "negative", 4.5) for place in near]
    marks += [_dot(place, reach, "positive", 7.0) for place in found.positives.tolist()]
    middle = tag("rect", x=HALF - 7, y=HALF - 7, width=14, height=14, class_="query")
    name = f"epoch {moment.epoch}" if moment.epoch else "untrained"
    words = f"{name}: {len(found.positives)} positives and {len(near)} negatives around the query"
    inside = tag("text", name, x=12, y=24, class_="when"), marks, middle
    return tag("svg", inside, viewBox=f"0 0 {2 * HALF} {2 * HALF}", class_="plane", role="img", aria_label=words)


def _dot(place: Sequence[float], reach: float, kind: str, radius: float) -> Html:
    x, y = (round(HALF + value / reach * (HALF - EDGE), 1) for value in place)
    return tag("circle", cx=x, cy=y, r=radius, class_=kind)
