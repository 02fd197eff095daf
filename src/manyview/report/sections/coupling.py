"""What the size of a batch does to the gradient of InfoNCE: the distribution of DCL's q_B."""

from __future__ import annotations

from manyview.diagnose import couplings
from manyview.embeddings.view_embeddings import Snapshot
from manyview.report.distribution import Values, boxes
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import Seen, some

SIZES = (8, 32, 128)
TEMPERATURE = 0.1  # for losses that have none


def coupling(seen: Seen, name: str) -> Html:
    """By batch size and epoch."""
    temperature = float((seen.told.config.part("loss") or {}).get("temperature") or TEMPERATURE)
    moments = some(seen.moments)
    sizes = [size for size in SIZES if size <= len(moments[0].looks.vectors)]
    rows = [_box(moment, size, temperature, seen.told.colour) for size in sizes for moment in moments]
    caption = (
        f"q_B, the factor of InfoNCE's gradient, at temperature {temperature:g}: the median over images, the middle "
        "half and the middle eight tenths. The smaller the batch, the more of the gradient is lost; DCL loses none."
    )
    drawn = boxes("Coupling by batch size", rows, Axis("q_B", low=0.0, high=1.0))
    return figure(f"Coupling by batch size{name}", drawn, caption, source="DCL, appendix, Proposition 1")


def _box(moment: Snapshot, size: int, temperature: float, colour: int) -> Values:
    first, second = moment.looks.vectors[:, 0], moment.looks.vectors[:, 1]
    values = couplings(first, second, [size], temperature=temperature)[size].tolist()
    return Values(f"batch {size}, epoch {moment.epoch}", values, colour, pale=not moment.epoch)
