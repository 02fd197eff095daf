"""Distances of cross-view prediction (CMC section 3.1): how far what is predicted is from the view, place by place.

A distance takes what a decoder gives (N, C', s, s) and the view itself (N, C, S, S), brings the view to s x s places
and gives a value for each place and channel (N, C, s, s), or with reduction="mean" their mean. Each is independent of
the others given the prediction, which is what CMC holds against it.

The view is NaN where there is no data. A place is averaged over what is known of it; one of which nothing is known has
the value NaN, without gradient, and is left out of the mean.
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.losses.traits import option

Reduction = Literal["none", "mean"]
Distance = Callable[..., Tensor]


def l2(predicted: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """(v - v^)^2. The view is averaged over each of the places."""
    known = _averaged(target, predicted)
    return _reduced(F.mse_loss(predicted.to(known.dtype), known.nan_to_num(), reduction="none"), known, reduction)


def l1(predicted: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """|v - v^|. The view is averaged over each of the places."""
    known = _averaged(target, predicted)
    return _reduced(F.l1_loss(predicted.to(known.dtype), known.nan_to_num(), reduction="none"), known, reduction)


def bins(
    predicted: Tensor,
    target: Tensor,
    *,
    classes: Count = 32,
    low: float = -1.0,
    high: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The cross-entropy of the bin that a value falls into, in nats; each channel has bins of its own.

    classes    bins of equal width from `low` to `high`; what is below or above falls into the first or the last
    low, high  in units of the normalised view: L, ab and the like end near -1 and 1

    The view is averaged over each of the places first. Split-brain autoencoders have one grid for a and b together (313
    cells); here the channels are independent, as places are, so that any view can be predicted.
    """
    if not low < high:
        raise UserError("low", f"{low} is not below high, {high}; bins lie between the two")
    values = _averaged(target, predicted)
    chosen = ((values.nan_to_num() - low) / (high - low) * classes).floor().clamp(0, classes - 1).long()
    return _reduced(_cross_entropy(predicted, chosen, classes), values, reduction)


def labels(predicted: Tensor, target: Tensor, *, classes: Count, reduction: Reduction = "mean") -> Tensor:
    """The cross-entropy of a class, in nats, for a view whose values are classes already, such as a segmentation.

    classes  how many there are: values are 0 to classes - 1; places with another, such as 255, are not known

    Of the view the value nearest to the middle of each of the places is taken.
    """
    values = F.interpolate(target, predicted.shape[2:], mode="nearest-exact").round()
    values = values.masked_fill((values < 0) | (values >= classes), torch.nan)
    return _reduced(_cross_entropy(predicted, values.nan_to_num().long(), classes), values, reduction)


DISTANCES: dict[str, Distance] = {"l2": l2, "l1": l1, "bins": bins, "labels": labels}


def takes_classes(distance: Distance) -> bool:
    """Says whether the values of the view must be classes, which are neither mixed nor normalised."""
    return getattr(distance, "func", distance) is labels


def channels_predicted(distance: Distance, channels: int) -> int:
    """Says how many channels a decoder must give for a view of so many: one each, or one a class."""
    return channels * (option(distance, "classes") or 1)


def _averaged(target: Tensor, predicted: Tensor) -> Tensor:
    """The mean of what is known of each place; NaN where nothing is."""
    total, known = (
        F.adaptive_avg_pool2d(each, predicted.shape[2:])  # type: ignore[arg-type]
        for each in (target.nan_to_num(), (~target.isnan()).to(target.dtype))
    )
    return total / known


def _reduced(values: Tensor, known: Tensor, reduction: Reduction) -> Tensor:
    """Values where the view is known, NaN elsewhere; or the mean of those."""
    unknown = known.isnan()
    if reduction == "none":
        return values.masked_fill(unknown, torch.nan)
    return values.masked_fill(unknown, 0).sum() / (~unknown).sum()


def _cross_entropy(predicted: Tensor, chosen: Tensor, classes: int) -> Tensor:
    """Computes that of scores (N, C classes, s, s) and classes (N, C, s, s)."""
    scores = predicted.unflatten(1, (-1, classes)).transpose(1, 2)
    if scores.dtype.itemsize < 4:
        scores = scores.float()  # after autocast
    return F.cross_entropy(scores, chosen, reduction="none")
