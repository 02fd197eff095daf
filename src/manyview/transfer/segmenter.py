"""Encoders with a decoder on their feature maps: a class for every pixel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.encoders import Encoder, dense_convolutions
from manyview.features.embedding_pass import as_input
from manyview.transfer.decoders import Shape


class Segmenter(nn.Module):
    """Views to scores (B, classes, H, W): encoders, one a view, and a decoder on their maps side by side.

    Of each encoder the last map of every resolution is taken; of a transformer, whose blocks all have one, that of its
    last block. Maps of one resolution are joined.

    encoders  by the view that each is for, of which copies are taken
    decoder   shapes of maps, the coarsest first, to what makes scores of such maps
    frozen    the encoders stay as they are, and in eval mode
    """

    def __init__(
        self, encoders: Mapping[str, Encoder], decoder: Callable[[Sequence[Shape]], nn.Module], *, frozen: bool
    ) -> None:
        super().__init__()
        self.frozen, self.views = frozen, tuple(encoders)
        self.encoders = nn.ModuleList([deepcopy(each) for each in encoders.values()]).requires_grad_(not frozen)
        dense_convolutions(self.encoders)
        self.layers = [_stages(each) for each in encoders.values()]
        self.decoder = decoder(joined_shapes([_shapes(each) for each in encoders.values()]))
        self.train()

    def train(self, mode: bool = True) -> Segmenter:
        super().train(mode)
        if self.frozen:
            self.encoders.eval()
        return self

    def forward(self, views: Views) -> Tensor:
        with torch.no_grad() if self.frozen else nullcontext():
            maps = joined_maps([self._maps(place, views) for place in range(len(self.views))])
        scores: Tensor = self.decoder(maps)
        return scores

    def _maps(self, place: int, views: Views) -> list[Tensor]:
        encoder, layers = self.encoders[place], self.layers[place]
        assert isinstance(encoder, Encoder)
        found = encoder.embed_with_maps(as_input(views[self.views[place]][0], encoder), layers)[1]
        return [found[layer].float() for layer in layers]


def joined_maps(by_encoder: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Maps of all encoders, those of one resolution side by side, the coarsest first."""
    found: dict[tuple[int, int], list[Tensor]] = {}
    for maps in by_encoder:
        for each in maps:
            found.setdefault((each.shape[2], each.shape[3]), []).append(each)
    return [torch.cat(found[side], 1) for side in sorted(found)]


def joined_shapes(by_encoder: Sequence[Sequence[Shape]]) -> list[Shape]:
    """The shapes of `joined_maps`."""
    empty = [[torch.empty(1, *shape, device="meta") for shape in shapes] for shapes in by_encoder]
    return [(each.shape[1], each.shape[2], each.shape[3]) for each in joined_maps(empty)]


def _last_maps(encoder: Encoder) -> dict[str, Shape]:
    """The last map of every resolution by its layer's name."""
    last: dict[tuple[int, int], tuple[str, Shape]] = {}
    for name, shape in encoder.layer_shapes().items():
        if len(shape) == 3 and min(shape[1:]) > 1:
            last[shape[1], shape[2]] = name, (shape[0], shape[1], shape[2])
    if not last:
        raise UserError("encoder", f"{encoder.name} has no feature maps; give a network that has")
    return dict(last.values())


def _stages(encoder: Encoder) -> list[str]:
    return list(_last_maps(encoder))


def _shapes(encoder: Encoder) -> list[Shape]:
    return list(_last_maps(encoder).values())
