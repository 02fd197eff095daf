"""Heads for feature maps: vectors at all positions of a layer, for patch-based contrast, and decoders of the last."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError, hint
from manyview.encoders.encoder import Encoder

LEAST_POSITIONS = 49  # 7 x 7


class UnknownLayer(UserError):
    """An encoder has no feature map of this name; another may have."""


class MapHead(NamedTuple):
    """Makes a head for the positions of a layer's feature map, where others are for the features.

    layer  its name; None: see `local_layer`
    make   makes a head for the map's channels, such as partial(heads.linear, dim_out=64)
    """

    layer: str | None
    make: Callable[[int], nn.Module]

    def build(self, encoder: Encoder) -> nn.Module:
        layer = self.layer or local_layer(encoder)
        maps = _maps(encoder)
        if layer not in maps:
            raise UnknownLayer("layer", f"{encoder.name} has no feature map {layer!r}; {hint(layer, maps)}")
        return OnMap(layer, Positions(self.make(maps[layer][0])))


class LastHead(NamedTuple):
    """Makes a head for the last layer of an encoder: its feature map before pooling, where it is one.

    make  makes a head for a map's shape (C, H, W), or for that of features (dim,), such as `decoders.upsampling`
    """

    make: Callable[[tuple[int, ...]], nn.Module]

    def build(self, encoder: Encoder) -> nn.Module:
        layers = list(encoder.layer_shapes().items())
        layer, shape = layers[-1] if layers else ("", (encoder.dim,))
        return OnMap(layer, self.make(shape)) if len(shape) == 3 else self.make((encoder.dim,))


class OnMap(nn.Module):
    """A head with the name of the layer whose feature map it is given."""

    def __init__(self, layer: str, head: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, head

    def forward(self, feature_map: Tensor) -> Tensor:
        made: Tensor = self.head(feature_map)
        return made


class Positions(nn.Module):
    """A feature map (B, C, H, W) to unit vectors (B, H W, d), by a head that all positions share."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, feature_map: Tensor) -> Tensor:
        rows = feature_map.flatten(2).transpose(1, 2)
        embedded = self.head(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
        precise = embedded.to(torch.promote_types(embedded.dtype, torch.float32))  # after autocast
        return F.normalize(precise, dim=2)


def local_layer(encoder: Encoder) -> str:
    """The last layer with at least 7 x 7 positions, or the one with most: its vectors see patches of the image."""
    maps = _maps(encoder)
    if not maps:
        raise UserError("layer", f"{encoder.name} has no feature maps; choose another encoder")
    large = [name for name, (_, positions) in maps.items() if positions >= LEAST_POSITIONS]
    return large[-1] if large else max(maps, key=lambda name: maps[name][1])


def _maps(encoder: Encoder) -> dict[str, tuple[int, int]]:
    """Channels and positions of every feature map, in order."""
    shapes = encoder.layer_shapes().items()
    return {name: (shape[0], shape[1] * shape[2]) for name, shape in shapes if len(shape) == 3}
