"""Decoders: from the features of one view to a picture of another, whatever network made the features."""

from torch import nn

from manyview.core.bounds import Count

START = 4  # the side of the smallest map, in pixels, at most


def upsampling(dim_in: int, channels: int, *, side: Count = 16, width: Count = 64) -> nn.Module:
    """Features (B, dim_in) to a picture (B, channels, side, side), as the decoder g of CMC section 3.1.

    A fully connected layer to `width` maps of at most 4 x 4, then as often as it takes: ReLU, twice the side by nearest
    neighbours, a 3x3 convolution. The last convolution, 3x3 as well, makes the channels. It begins at the feature
    vector, the z of the paper, and so where the head of a contrastive method begins. It has no batch norm, so that a
    picture does not depend on its batch.
    """
    sides = [side]
    while sides[0] > START:
        sides.insert(0, (sides[0] + 1) // 2)
    start = sides[0]
    parts: list[nn.Module] = [nn.Linear(dim_in, width * start**2), nn.Unflatten(1, (width, start, start)), nn.ReLU()]
    for each in sides[1:]:
        parts += [nn.Upsample((each, each)), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*parts, nn.Conv2d(width, channels, 3, padding=1))
