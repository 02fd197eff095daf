"""What an encoder gained over another on the same images: the difference of two scores, and its standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor


class Share(float):
    """A share of right answers that remembers which ones are right, (n,) bool."""

    right: Tensor

    @classmethod
    def of(cls, right: Tensor) -> Share:
        made = cls(right.double().mean())
        made.right = right.cpu()
        return made


def answers(scores: Mapping[str, float]) -> dict[str, Tensor]:
    """Gives the right answers, (n,) bool, of scores that remember them: what a checkpoint keeps of a `Share`."""
    return {name: score.right for name, score in scores.items() if isinstance(score, Share)}


def gain_error(after: Tensor | None, before: Tensor | None) -> float | None:
    """The standard error of a gain in the share of right answers (n,), over the images that both were asked about.

    It is the std of (right after - right before) over the images, divided by the root of their number: of the very same
    images the scores rise and fall together, so that it is smaller than what the two scores' own errors add up to. It
    says how far other images of the same kind would move the gain, and nothing of other seeds. Half an image more is
    counted of each of the four kinds (right or wrong, before and after; Agresti & Min, Statistics in Medicine 2005):
    a handful whose answers all change alike would otherwise be sure. None where either is not known, or they were not
    asked about the same number of images.
    """
    if after is None or before is None or after.shape != before.shape or not len(after):
        return None
    learnt, unlearnt, count = _half(after & ~before), _half(before & ~after), len(after) + 2
    return math.sqrt(learnt + unlearnt - (learnt - unlearnt) ** 2 / count) / count


def _half(found: Tensor) -> float:
    return float(found.sum()) + 0.5


def gain_errors(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """`gain_error` by score; scores that do not remember their answers have none."""
    new, old = answers(after), answers(before)
    errors = {name: gain_error(right, old.get(name)) for name, right in new.items()}
    return {name: error for name, error in errors.items() if error is not None}


def gain_in_points(after: float, before: float, error: float | None = None) -> str:
    """ "+3.7 ± 0.9": the difference of the two shares as they are printed, in points, and its standard error."""
    gained = float(f"{100 * after:.1f}") - float(f"{100 * before:.1f}")
    return f"{gained:+.1f}" + ("" if error is None else f" \N{PLUS-MINUS SIGN} {100 * error:.1f}")
