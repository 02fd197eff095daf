"""What an encoder says of the places of images: colours by principal components, and places that correspond."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError

TAILS = 0.02  # of the values at either end, which are cut off
COLOURS = 3


@dataclass(frozen=True, eq=False)
class Correspondence:
    """Places of two feature maps that are one another's nearest, the most alike first.

    first, second  (n, 2) row and column in each map
    similarity     (n,) cosines
    """

    first: Tensor
    second: Tensor
    similarity: Tensor


def principal_colours(maps: Tensor) -> Tensor:
    """Gives feature maps (n, d, h, w) colours (n, 3, h, w) in [0, 1]: the first three principal components of all
    places of all maps together, each stretched from its 2nd to its 98th percentile.

    So places of one colour have features alike, in one image and from one to the other. Where features have fewer than
    three components, the others are 0.5.
    """
    _check(maps, 4)
    places = maps.movedim(1, -1).reshape(-1, maps.shape[1]).double()
    centred = places - places.mean(0)
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    found = torch.full((len(places), COLOURS), 0.5, dtype=torch.float64)
    for number in range(min(COLOURS, len(values))):
        if values[-1 - number] <= 1e-12 * values[-1].clamp_min(1e-300):
            break
        axis = vectors[:, -1 - number]
        axis = axis * axis[axis.abs().argmax()].sign()  # eigenvectors have no sign of their own
        found[:, number] = _stretched(centred @ axis)
    return found.view(len(maps), *maps.shape[2:], COLOURS).movedim(-1, 1).float()


def correspondence(first: Tensor, second: Tensor, most: int) -> Correspondence:
    """Finds at most so many pairs of places of two feature maps (d, h, w) that are one another's nearest.

    By the cosine of features less their mean over both maps, which all places share and which tells none apart.
    """
    for each in (first, second):
        _check(each, 3)
    mean = torch.cat([first.flatten(1), second.flatten(1)], 1).mean(1, keepdim=True)
    one, other = (F.normalize((each.flatten(1) - mean).double(), dim=0) for each in (first, second))
    cosines = one.T @ other  # (places of the first, places of the second)
    forth, back = cosines.argmax(1), cosines.argmax(0)
    mine = torch.arange(len(forth))
    mutual = mine[back[forth] == mine]
    similarity = cosines[mutual, forth[mutual]]
    best = similarity.argsort(descending=True, stable=True)[:most]
    mutual, similarity = mutual[best], similarity[best]
    return Correspondence(_cells(mutual, first.shape[2]), _cells(forth[mutual], second.shape[2]), similarity)


def _stretched(values: Tensor) -> Tensor:
    low, high = values.quantile(torch.tensor([TAILS, 1 - TAILS], dtype=values.dtype))
    shares: Tensor = (values - low) / (high - low).clamp_min(1e-12)
    return shares.clamp(0, 1)


def _cells(places: Tensor, columns: int) -> Tensor:
    return torch.stack([places // columns, places % columns], 1)


def _check(maps: Tensor, dims: int) -> None:
    if maps.dim() != dims or not maps.isfinite().all():
        raise UserError("maps", f"expected finite feature maps of {dims} dimensions, got {tuple(maps.shape)}")
