"""The section of the papers' figures, drawn from the embeddings of this page's runs.

How features vary between the augmented views of an image (JCL's Fig. 3) and along their principal directions; how
evenly the negatives of a batch weigh (CACR's Fig. 3 to 5) and how they scale the gradient (DCL).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from manyview.core.errors import UserError
from manyview.diagnose import Spread, couplings, spectrum
from manyview.diagnose.measures import PREFIX
from manyview.diagnose.negatives import T_NEG
from manyview.embeddings.view_embeddings import Snapshot
from manyview.report.charts import Distribution, Line, Point, box_plot, histogram, line_chart
from manyview.report.frame import Axis
from manyview.report.html import Child, Html, attempted, figure, left_out, section, tag
from manyview.report.run_embeddings import AUGMENTED, EmbeddedRuns, RunEmbeddings
from manyview.report.run_record import RunRecord
from manyview.report.sections.query import neighbourhoods, weights

LEAD = "The papers' own figures, made from this page's runs. Dashed or pale is the same encoder before training."
ROUNDING = 1e-6  # a share of the variance below which it is rounding
ENTROPY = "batch_entropy"
ON_HELD_OUT, ON_TRAINING = "Entropy on held-out images", "Entropy on training images"
SIZES = (8, 32, 128)  # of batches
TEMPERATURE = 0.1  # for losses that have none

Curves = tuple[RunRecord, list[Point], list[Point]]
"""A run, its entropy by epoch, and the most that it could be."""


def diagnostics(records: Sequence[RunRecord], embedded: EmbeddedRuns) -> Html:
    shown = embedded.shown
    missing = [left_out(f"The embeddings of {name}", why) for name, why in embedded.missing.items()]
    small = [attempted(ON_HELD_OUT, partial(entropy, records, shown))]
    if shown:
        small += [
            attempted("Agreement of augmented views", partial(agreement, shown)),
            attempted("Variance of augmented views", partial(variance, shown)),
            attempted("Spectrum of the features", partial(spectra, shown)),
        ]
    large = []
    for number, each in enumerate(shown):
        name = f": {each.record.name}" if len(shown) > 1 else ""
        small.append(_contrasted(f"Coupling by batch size{name}", each, partial(coupling, name=name)))
        queries = partial(weights, number=number, name=name), partial(neighbourhoods, name=name)
        large.append(_contrasted(f"Weights of positives and negatives{name}", each, queries[0]))
        large.append(_contrasted(f"A query's neighbourhood{name}", each, queries[1]))
    inside = tag("div", small, class_="grid"), tag("div", large, class_="grid pairs")
    return section("diagnostics", "Diagnostics", LEAD + embedded.which_view, inside, missing)


def _contrasted(title: str, embedded: RunEmbeddings, draw: Callable[[RunEmbeddings], Html]) -> Child:
    """Draws a figure of a method that contrasts; others, such as a prediction, have none."""
    return attempted(title, lambda: draw(embedded) if embedded.contrasts else None)


def agreement(shown: Sequence[RunEmbeddings]) -> Html:
    """Draws how similar the augmented views of an image are."""
    groups = _by_run(shown, lambda spread: spread.similarity)
    caption = (
        f"Mean cosine of {AUGMENTED} augmented views of an image, for {len(groups[0].values)} images. To the right: "
        "the encoder is invariant to the augmentation. A collapsed encoder is at 1 as well, so read it with the map."
    )
    drawn = histogram("Agreement of augmented views", groups, Axis("mean cosine similarity", high=1.0))
    return figure("Agreement of augmented views", drawn, caption, source="JCL, Fig. 3 (a)")


def variance(shown: Sequence[RunEmbeddings]) -> Html:
    """Draws the variance of features over the augmented views of an image."""
    groups = _by_run(shown, lambda spread: 1e3 * spread.variance)
    caption = (
        "Mean variance of a feature over the same views. To the left: features that the augmentation leaves alone."
    )
    drawn = histogram("Variance of augmented views", groups, Axis("variance per dimension, in thousandths", low=0.0))
    return figure("Variance of augmented views", drawn, caption, source="JCL, Fig. 3 (b)")


def spectra(shown: Sequence[RunEmbeddings]) -> Html:
    """Draws the spectrum of each run's features; of a single run, before training and after."""
    alone = len(shown) == 1
    made = [_spectrum("trained" if alone else each.record.name, each.features, each.record.colour) for each in shown]
    made += [_spectrum("untrained", shown[0].untrained_features, 8, dashed=True)] if alone else []
    caption = (
        "Share of the features' variance along each principal direction. A steep fall means that few are in use. "
        f"RankMe: {', '.join(rank for _, rank in made)}."
    )
    x, y = Axis("principal direction", low=0.0), Axis("share of the variance", log=True)
    drawn = line_chart("Spectrum of the features", [line for line, _ in made], x, y)
    return figure("Spectrum of the features", drawn, caption, source="RankMe, Garrido et al.")


def _by_run(shown: Sequence[RunEmbeddings], of: Callable[[Spread], Tensor]) -> list[Distribution]:
    """Makes a distribution per run; for a single run, before training and after."""
    if len(shown) > 1:
        return [Distribution(each.record.name, of(each.spread).tolist(), each.record.colour) for each in shown]
    (only,) = shown
    before = Distribution("untrained", of(only.untrained_spread).tolist(), 8, pale=True)
    return [Distribution("trained", of(only.spread).tolist()), before]


def _spectrum(name: str, features: Tensor, colour: int, *, dashed: bool = False) -> tuple[Line, str]:
    found = spectrum(features)
    shares = (found.eigenvalues / found.eigenvalues.sum().clamp_min(1e-300)).tolist()
    points = [(float(number), share) for number, share in enumerate(shares, 1) if share > ROUNDING]
    return Line(name, points, colour, dashed), f"{name} {found.rank:.0f} of {found.limit}"


def entropy(records: Sequence[RunRecord], shown: Sequence[RunEmbeddings]) -> Html | None:
    """Draws the entropy of the negatives as training logged it, or else at the snapshots that are left."""
    runs = [(run, run.curve(PREFIX + ENTROPY), run.curve(f"{PREFIX}{ENTROPY}_limit")) for run in records]
    runs, held_out = [each for each in runs if each[1]], True
    if not runs:
        shown = [each for each in shown if each.contrasts]
        held_out = all(snapshot.embeddings.held_out for each in shown for snapshot in each.snapshots)
        runs = [
            (each.record, _curve(each.snapshots, ENTROPY), _curve(each.snapshots, f"{ENTROPY}_limit")) for each in shown
        ]
    return _entropy(runs, held_out) if runs else None


def coupling(embedded: RunEmbeddings, name: str) -> Html:
    """Draws the distribution of q_B by batch size and epoch."""
    temperature = embedded.loss_option("temperature", TEMPERATURE)
    snapshots = embedded.few_snapshots
    images = len(snapshots[0].embeddings.vectors)
    sizes = [size for size in SIZES if size <= images]
    if not sizes:
        raise UserError("data", f"batches of {SIZES[0]} images are needed, and there are {images}")
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
        f"H(X\u207b|X) at t\u207b = {T_NEG:g}, the mean over batches of {kind} images. In the paper it rises towards "
        "its maximum, the dashed line, as the encoder learns to tell images apart."
    )
    drawn = line_chart(title, [*measured, *limits.values()], Axis("epoch", low=0.0), Axis("nats"))
    return figure(title, drawn, caption, source="CACR, Fig. 3 to 5")


def _curve(snapshots: Sequence[Snapshot], name: str) -> list[Point]:
    return [(float(each.epoch), each.measures[name]) for each in snapshots if name in each.measures]


def _q_b(snapshot: Snapshot, size: int, temperature: float, colour: int) -> Distribution:
    first, second = snapshot.embeddings.vectors[:, 0], snapshot.embeddings.vectors[:, 1]
    values = couplings(first, second, [size], temperature=temperature)[size].tolist()
    return Distribution(f"batch {size}, epoch {snapshot.epoch}", values, colour, pale=not snapshot.epoch)
