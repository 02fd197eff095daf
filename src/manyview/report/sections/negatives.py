"""What the negatives of a batch do: how evenly they weigh (CACR's Fig. 3 to 5), how they scale the gradient (DCL)."""

from __future__ import annotations

from collections.abc import Sequence

from manyview.diagnose import couplings
from manyview.diagnose.entropy import T_NEG
from manyview.diagnose.validation import PREFIX
from manyview.embeddings.view_embeddings import Snapshot
from manyview.report.chart import Line, Point, line_chart
from manyview.report.distribution import Distribution, box_plot
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import RunEmbeddings
from manyview.report.run_record import RunRecord

ENTROPY = "batch_entropy"
ON_HELD_OUT, ON_TRAINING = "Entropy on held-out images", "Entropy on training images"
SIZES = (8, 32, 128)  # of batches
TEMPERATURE = 0.1  # for losses that have none

Curves = tuple[RunRecord, list[Point], list[Point]]
"""A run, its entropy by epoch, and the most that it could be."""


def entropy(records: Sequence[RunRecord], shown: Sequence[RunEmbeddings]) -> Html | None:
    """Draws the entropy of the negatives as training wrote it down, or else at the snapshots that are left."""
    runs = [(run, run.curve(PREFIX + ENTROPY), run.curve(f"{PREFIX}{ENTROPY}_limit")) for run in records]
    runs, held_out = [each for each in runs if each[1]], True
    if not runs:
        held_out = all(snapshot.embeddings.held_out for each in shown for snapshot in each.snapshots)
        runs = [
            (each.record, _curve(each.snapshots, ENTROPY), _curve(each.snapshots, f"{ENTROPY}_limit")) for each in shown
        ]
    return _entropy(runs, held_out) if runs else None


def coupling(embedded: RunEmbeddings, name: str) -> Html:
    """Draws the distribution of q_B by batch size and epoch."""
    temperature = embedded.loss_option("temperature", TEMPERATURE)
    snapshots = embedded.few_snapshots
    sizes = [size for size in SIZES if size <= len(snapshots[0].embeddings.vectors)]
    rows = [_q_b(snapshot, size, temperature, embedded.record.colour) for size in sizes for snapshot in snapshots]
    caption = (
        f"q_B, the factor of InfoNCE's gradient, at temperature {temperature:g}: the median over images, the middle "
        "half and the middle eight tenths. The smaller the batch, the more of the gradient is lost; DCL loses none."
    )
    drawn = box_plot("Coupling by batch size", rows, Axis("q_B", low=0.0, high=1.0))
    return figure(f"Coupling by batch size{name}", drawn, caption, source="DCL, appendix, Proposition 1")


def _entropy(runs: Sequence[Curves], held_out: bool) -> Html:
    measured = [Line("entropy" if len(runs) == 1 else run.name, points, run.colour) for run, points, _ in runs]
    limits = {round(points[-1][1], 2): Line("maximum", points, 8, dashed=True) for _, _, points in runs if points}
    title, kind = (ON_HELD_OUT, "held-out") if held_out else (ON_TRAINING, "training")
    caption = (
        f"H(X\u207b|X) at t\u207b = {T_NEG:g} in batches of {kind} images. In the paper it rises towards its maximum, "
        "the dashed line, as the encoder learns to tell images apart."
    )
    drawn = line_chart(title, [*measured, *limits.values()], Axis("epoch", low=0.0), Axis("nats"))
    return figure(title, drawn, caption, source="CACR, Fig. 3 to 5")


def _curve(snapshots: Sequence[Snapshot], name: str) -> list[Point]:
    return [(float(each.epoch), each.measures[name]) for each in snapshots if name in each.measures]


def _q_b(snapshot: Snapshot, size: int, temperature: float, colour: int) -> Distribution:
    first, second = snapshot.embeddings.vectors[:, 0], snapshot.embeddings.vectors[:, 1]
    values = couplings(first, second, [size], temperature=temperature)[size].tolist()
    return Distribution(f"batch {size}, epoch {snapshot.epoch}", values, colour, pale=not snapshot.epoch)
