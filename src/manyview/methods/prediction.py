"""Cross-view prediction: an encoder learns from what a decoder can tell of another view. No negatives, no contrast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations

import torch
from torch import nn

from manyview.core.errors import UserError, hint
from manyview.encoders import Encoder, Slot, Towers, decoders
from manyview.encoders.map_heads import LastHead
from manyview.encoders.tower import AnyHead
from manyview.losses import prediction as distances
from manyview.methods.method import Method, UnknownView
from manyview.methods.terms import Prediction

Decoder = Callable[[tuple[int, ...], int], nn.Module]


def prediction(
    encoders: Mapping[str, Encoder],
    *,
    target: str | None = None,
    distance: distances.Distance = partial(distances.l2),
    decoder: Decoder = partial(decoders.upsampling, side=16, width=64),
) -> Method:
    """Predictive learning (CMC section 3.1): the other views' encoders, each with a decoder, predict the target.

    target    the view that is predicted; the last unless named. It has no encoder
    distance  `l1`, `l2`; `bins`: cross-entropy over quantised values; `labels`: for a view that is classes already
    decoder   from the last layer of the encoder, its feature map before pooling where it is one, to the target at
              `side` x `side`

    The encoders are those of `cmc`, so that Table 5 compares the objectives alone.
    """
    views = list(encoders)
    if target is not None and target not in views:
        raise UnknownView("target", f"there is no view {target!r}; {hint(target, views)}")
    predicted = target or views[-1]
    return _predicting(encoders, [(view, predicted) for view in views if view != predicted], distance, decoder)


def split_brain(
    encoders: Mapping[str, Encoder],
    *,
    distance: distances.Distance = partial(distances.l2),
    decoder: Decoder = partial(decoders.upsampling, side=16, width=64),
) -> Method:
    """Split-brain autoencoders (Zhang et al., CVPR 2017): each view's encoder predicts every other view.

    The halves never see each other; their features side by side are the representation. Zhang et al. predict 12 x 12
    places of Lab, by `l2` or by classes, which were better: here `--distance bins`.
    """
    return _predicting(encoders, list(permutations(encoders, 2)), distance, decoder)


def _predicting(
    encoders: Mapping[str, Encoder],
    directions: Sequence[tuple[str, str]],
    distance: distances.Distance,
    decoder: Decoder,
) -> Method:
    """The sum over directions, seen to predicted, of the mean distance; a decoder for each."""
    if not directions:
        raise UserError("views", f"expected two or more, one to predict another, got {', '.join(encoders)} alone")
    heads: dict[str, dict[str, AnyHead]] = {}
    for seen, predicted in directions:
        own = encoders[predicted].options["channels"]
        channels = distances.channels_predicted(distance, own)
        distance(torch.zeros(1, channels, 1, 1), torch.zeros(1, own, 1, 1))  # refuses numbers that make no sense
        heads.setdefault(_head(predicted), {})[seen] = LastHead(partial(_decoder, decoder=decoder, channels=channels))
    seeing = {seen: encoders[seen] for seen, _ in directions}
    terms = [
        Prediction(
            Slot("query", seen, 0, _head(predicted)), Slot("input", predicted, 0, "view"), distance,
            name=f"{seen} to {predicted}",
        )
        for seen, predicted in directions
    ]  # fmt: skip
    return Method(views=dict.fromkeys(encoders, 1), towers=Towers(seeing, None, heads=heads), terms=terms)


def _head(predicted: str) -> str:
    """The name of the decoder of a view."""
    return f"predicted {predicted}"


def _decoder(shape: tuple[int, ...], *, decoder: Decoder, channels: int) -> nn.Module:
    return decoder(shape, channels)
