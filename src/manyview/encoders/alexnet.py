"""AlexNet with batch norm, whole or half of it a view, as CMC has it for ImageNet."""

from torch import nn

from manyview.encoders.backbone import Backbone
from manyview.encoders.layered import Layered, Layers, backbone, scaled

WIDTHS = (96, 256, 384, 384, 256)
HIDDEN = 4096


def build(channels: int, size: int, out_dim: int | None = None, width: float = 1.0) -> Backbone:
    """AlexNet (Krizhevsky et al., NeurIPS 2012) without groups, for images of 224 px; width=0.5 is CMC's Table 11.

    Convolutions of 96, 256, 384, 384, 256 channels: 11x11 of stride 4 and padding 2, 5x5, then 3x3; max-pool 3/2 after
    1, 2 and 5; fc6 and fc7 of 4096 units. Table 11 has no more; batch norm and ReLU after each, biases in fully
    connected layers alone, are those of the authors' code (HobbitLong/CMC, models/alexnet.py).

    The representation is fc7; with out_dim=128 fc8, the head, is part of the network.

    width  so many times the channels and units: 0.5 for half an AlexNet a view
    """
    one, two, three, four, five = scaled(WIDTHS, width)
    (hidden,) = scaled((HIDDEN,), width)
    convolutions = {
        "conv1": _convolution(nn.Conv2d(channels, one, 11, stride=4, padding=2, bias=False), pooled=True),
        "conv2": _convolution(nn.Conv2d(one, two, 5, padding=2, bias=False), pooled=True),
        "conv3": _convolution(nn.Conv2d(two, three, 3, padding=1, bias=False)),
        "conv4": _convolution(nn.Conv2d(three, four, 3, padding=1, bias=False)),
        "conv5": _convolution(nn.Conv2d(four, five, 3, padding=1, bias=False), pooled=True),
    }

    def fully_connected(features: int) -> Layers:
        layers: dict[str, nn.Module] = {
            "fc6": nn.Sequential(nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)),
            "fc7": nn.Sequential(nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)),
        }
        return layers if out_dim is None else {**layers, "fc8": nn.Linear(hidden, out_dim)}

    return backbone(Layered("alexnet", channels, size, convolutions, fully_connected))


def _convolution(convolution: nn.Conv2d, pooled: bool = False) -> nn.Sequential:
    parts = [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, *([nn.MaxPool2d(3, 2)] if pooled else []))
