"""One view is predicted from another by a decoder: no embedding is contrasted, there are no negatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from manyview.encoders import Encoder, Slot, Towers
from manyview.methods.method import Method
from manyview.methods.terms import Prediction

SIDE = 32  # of the views


def decoder(dim_in: int, *, channels: int = 1, side: int = SIDE) -> nn.Module:
    """A picture (channels, side, side) from a vector."""
    return nn.Sequential(nn.Linear(dim_in, channels * side * side), nn.Unflatten(1, (channels, side, side)))


def prediction(
    encoders: Mapping[str, Encoder], *, decoder: Callable[[int], nn.Module] = partial(decoder, side=SIDE)
) -> Method:
    """The first view's encoder learns to predict the second view."""
    seen, predicted = encoders
    towers = Towers({seen: encoders[seen]}, None, heads={"decoded": decoder})
    term = Prediction(Slot("query", seen, 0, "decoded"), Slot("input", predicted, 0, "view"))
    return Method(views={seen: 1, predicted: 1}, towers=towers, terms=[term])
