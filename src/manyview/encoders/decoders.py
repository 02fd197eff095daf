"""Decoders: from the last layer of one view's encoder to a picture of another view, whatever network it is."""

from torch import nn

from manyview.core.bounds import Count

START = 4  # the side of the first map where features have none


def upsampling(shape: tuple[int, ...], channels: int, *, side: Count = 16, width: Count = 64) -> nn.Module:
    """The last layer's output to a picture (B, channels, side, side), as the decoder g of CMC section 3.1.

    shape  (C, H, W) of a feature map, which a 1x1 convolution brings to `width` channels; or (dim,) of features without
           places, which a fully connected layer brings to `width` maps of 4 x 4

    Then ReLU, and as often as it takes: up to twice the side by nearest neighbours, a 3x3 convolution, ReLU. The last
    convolution, 3x3 as well, makes the channels. Without batch norm a picture does not depend on its batch.
    """
    if len(shape) == 3:
        first: list[nn.Module] = [nn.Conv2d(shape[0], width, 1)]
        now = max(shape[1:])
    else:
        first = [nn.Linear(shape[0], width * START**2), nn.Unflatten(1, (width, START, START))]
        now = START
    parts: list[nn.Module] = [*first, nn.ReLU()]
    while True:
        now = min(2 * now, side)
        parts += [nn.Upsample((now, now)), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        if now == side:
            return nn.Sequential(*parts, nn.Conv2d(width, channels, 3, padding=1))
