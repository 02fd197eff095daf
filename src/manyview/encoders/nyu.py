"""The encoder of CMC's experiments on NYU-Depth v2, five convolutions and two fully connected layers."""

from torch import nn

from manyview.encoders.backbone import Backbone
from manyview.encoders.layered import Layered, Layers, backbone

CONVOLUTIONS = (  # channels, kernel, stride, padding: Table 12
    (64, 8, 2, 3),
    (128, 4, 2, 1),
    (256, 4, 2, 1),
    (256, 3, 1, 1),
    (512, 4, 2, 1),
)
HIDDEN = 512


def build(channels: int, size: int, out_dim: int | None = None) -> Backbone:
    """CMC's Table 12, for patches of 128 px: convolutions 64-128-256-256-512, a max-pool 2/2 after the first, fc6.

    Table 12 says no more than that; each layer is without bias, then batch norm and ReLU, as in CMC's other networks.
    The representation is fc6 (B, 512); the last layer, fc7 of 256 units, is the head: `linear` to 256, or with
    out_dim=256 part of the network.
    """
    layers, before = {}, channels
    for number, (width, kernel, stride, padding) in enumerate(CONVOLUTIONS, start=1):
        convolution = nn.Conv2d(before, width, kernel, stride, padding, bias=False)
        parts = [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        layers[f"conv{number}"] = nn.Sequential(*parts, *([nn.MaxPool2d(2)] if number == 1 else []))
        before = width

    def fully_connected(features: int) -> Layers:
        fc6 = nn.Sequential(nn.Linear(features, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU(inplace=True))
        return {"fc6": fc6} if out_dim is None else {"fc6": fc6, "fc7": nn.Linear(HIDDEN, out_dim)}

    return backbone(Layered("nyu", channels, size, layers, fully_connected))
