"""How features vary: between the augmented views of an image (JCL's Fig. 3), and along their principal directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from manyview.diagnose import Spread, spectrum
from manyview.report.chart import Line, line_chart
from manyview.report.distribution import Distribution, histogram
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import AUGMENTED, RunEmbeddings

ROUNDING = 1e-6  # a share of the variance below which it is rounding


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
    return figure("Spectrum of the features", drawn, caption, source="RankMe, Eq. 1")


def _by_run(shown: Sequence[RunEmbeddings], of: Callable[[Spread], Tensor]) -> list[Distribution]:
    """Gives a distribution a run; of a single run, before training and after."""
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
