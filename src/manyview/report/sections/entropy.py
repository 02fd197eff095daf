"""How evenly negatives matter, on images that training does not see where there are any: CACR's Fig. 3 to 5."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.diagnose.entropy import T_NEG
from manyview.diagnose.validation import PREFIX
from manyview.embeddings.view_embeddings import Snapshot
from manyview.report.chart import Line, Point, lines
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import Seen
from manyview.report.run_record import Told

NAME = "batch_entropy"
TITLE = "Entropy on images kept aside"
SEEN = "Entropy on images learnt from"


def entropy(told: Sequence[Told], shown: Sequence[Seen]) -> Html | None:
    """As training wrote it down, or else at the moments that can still be looked at."""
    runs = [(run, run.curve(PREFIX + NAME), run.curve(f"{PREFIX}{NAME}_limit")) for run in told]
    runs, unseen = [each for each in runs if each[1]], True
    if not runs:
        unseen = all(moment.looks.held_out for each in shown for moment in each.moments)
        runs = [(each.told, _over(each.moments, NAME), _over(each.moments, f"{NAME}_limit")) for each in shown]
    if not runs:
        return None
    alone = len(runs) == 1
    measured = [Line("entropy" if alone else run.name, points, run.colour) for run, points, _ in runs]
    limits = {round(points[-1][1], 2): Line("maximum", points, 8, dashed=True) for _, _, points in runs if points}
    title, seen = (TITLE, "does not see") if unseen else (SEEN, "sees")
    caption = (
        f"H(X\u207b|X) at t\u207b = {T_NEG:g} in batches of images that training {seen}. In the paper it rises "
        "towards its maximum, the dashed line, as the encoder learns to tell images apart."
    )
    drawn = lines(title, [*measured, *limits.values()], Axis("epoch", low=0.0), Axis("nats"))
    return figure(title, drawn, caption, source="CACR, Fig. 3 to 5")


def _over(moments: Sequence[Snapshot], name: str) -> list[Point]:
    return [(float(moment.epoch), moment.measures[name]) for moment in moments if name in moment.measures]
