"""How many directions the features use."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from manyview.diagnose import spectrum
from manyview.report.chart import Line, lines
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import Seen

LEAST = 1e-6  # of the variance: below is rounding


def spectra(shown: Sequence[Seen]) -> Html:
    """Of each run; of a single one, before training and after."""
    alone = len(shown) == 1
    made = [_line("trained" if alone else each.told.name, each.features, each.told.colour) for each in shown]
    made += [_line("untrained", shown[0].before, 8, dashed=True)] if alone else []
    caption = (
        "Share of the features' variance along each principal direction. A steep fall means that few are in use. "
        f"RankMe: {', '.join(rank for _, rank in made)}."
    )
    x, y = Axis("principal direction", low=0.0), Axis("share of the variance", log=True)
    drawn = lines("Spectrum of the features", [line for line, _ in made], x, y)
    return figure("Spectrum of the features", drawn, caption, source="RankMe, Eq. 1")


def _line(name: str, features: Tensor, colour: int, *, dashed: bool = False) -> tuple[Line, str]:
    found = spectrum(features)
    shares = (found.eigenvalues / found.eigenvalues.sum().clamp_min(1e-300)).tolist()
    points = [(float(number), share) for number, share in enumerate(shares, 1) if share > LEAST]
    return Line(name, points, colour, dashed), f"{name} {found.rank:.0f} of {found.limit}"
