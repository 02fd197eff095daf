"""The last step of a view: its channels, taken of crops in [0, 1] or in bytes, become (x - mean) / std."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from manyview.views.colour_spaces import SPACES
from manyview.views.view import Modality, View


def is_plain(views: Mapping[str, View]) -> bool:
    """Tells whether all that is seen of a modality is the modality itself, once."""
    return len(views) == 1 and all(view == View(view.modality) for view in views.values())


def to_normalise(
    planes: Tensor, views: Mapping[str, View], modality: Modality
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Gives the channels (C, n, h, w) of each view, and scale and shift (C or 1, 1, 1, 1) that normalise them.

    Planes may be overwritten. Those of 8 bits are normalised from 0 to 255.
    """
    plain = is_plain(views)
    spaces = {
        space: planes if space is None else SPACES[space].convert(planes)
        for space in {view.space for view in views.values()}
    }
    for name, view in views.items():
        own = planes if plain else view.taken(spaces[view.space])
        mean, std = (torch.tensor(x, device=own.device).view(-1, 1, 1, 1) for x in view.statistics(modality))
        unit = 1.0 if own.is_floating_point() else modality.unit(own)
        yield name, own, unit / std, -mean / std


def normalise(planes: Tensor, scale: Tensor, shift: Tensor, out: Tensor) -> Tensor:
    """Writes planes * scale + shift into `out`; on a CPU a picture at a time, which then stays in the cache."""
    if planes.device.type != "cpu":
        return torch.mul(planes, scale, out=out).add_(shift)
    for picture, made in zip(planes.unbind(1), out.unbind(1), strict=True):
        made.copy_(picture).mul_(scale[:, 0]).add_(shift[:, 0])
    return out
