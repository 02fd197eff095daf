"""How far the looks at an image lie apart: JCL's Fig. 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from manyview.diagnose import Spread
from manyview.report.distribution import Values, histogram
from manyview.report.frame import Axis
from manyview.report.html import Html
from manyview.report.parts import figure
from manyview.report.run_embeddings import AUGMENTED, Seen


def agreement(shown: Sequence[Seen]) -> Html:
    groups = _groups(shown, lambda spread: spread.similarity)
    caption = (
        f"Mean cosine of {AUGMENTED} looks at an image, for {len(groups[0].values)} images. To the right: the encoder "
        "sees through the augmentation. An encoder that tells nothing apart is at 1 as well, so read it with the map."
    )
    drawn = histogram("Agreement of looks", groups, Axis("mean cosine similarity", high=1.0))
    return figure("Agreement of looks", drawn, caption, source="JCL, Fig. 3 (a)")


def variance(shown: Sequence[Seen]) -> Html:
    groups = _groups(shown, lambda spread: 1e3 * spread.variance)
    caption = "Mean variance of a feature over the same looks. To the left: features that do not change with the look."
    drawn = histogram("Variance of looks", groups, Axis("variance per dimension, in thousandths", low=0.0))
    return figure("Variance of looks", drawn, caption, source="JCL, Fig. 3 (b)")


def _groups(shown: Sequence[Seen], of: Callable[[Spread], Tensor]) -> list[Values]:
    """One a run; of a single run, before training and after."""
    if len(shown) > 1:
        return [Values(each.told.name, of(each.spread).tolist(), each.told.colour) for each in shown]
    (only,) = shown
    before = Values("untrained", of(only.spread_before).tolist(), 8, pale=True)
    return [Values("trained", of(only.spread).tolist()), before]
