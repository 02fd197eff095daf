"""CaffeNet, the AlexNet of Caffe's model zoo, which CMC and split-brain autoencoders use."""

from typing import Literal

from torch import nn

from manyview.encoders.backbone import Backbone
from manyview.encoders.layered import Layered, Layers, backbone


def build(channels: int, size: int, last: Literal["fc6", "fc7"] = "fc7", dropout: float = 0.5) -> Backbone:
    """CaffeNet (BVLC reference; Jia et al., 2014): AlexNet with two groups of channels, pooling before normalisation.

    Convolutions of 96, 256, 384, 384, 256 channels, the second, fourth and fifth in two groups; local response
    normalisation after the first two; fc6 and fc7 of 4096 units with dropout; biases everywhere, no batch norm. The
    first convolution is padded by 2, so that images of 224 px give the maps that Caffe's 227 px give: 55, 27, 13 and 6.
    Weights are drawn as in Caffe: N(0, 0.01^2), in fully connected layers N(0, 0.005^2), biases 0, or 1 in convolutions
    2, 4 and 5 and the fully connected layers.

    last     the layer that is the representation: fc6 in CMC's video experiments (E.3)
    dropout  the share of fc6's and fc7's units that is dropped in training
    """
    convolutions = {
        "conv1": _convolution(nn.Conv2d(channels, 96, 11, stride=4, padding=2), 0, pooled=True, normalised=True),
        "conv2": _convolution(nn.Conv2d(96, 256, 5, padding=2, groups=2), 1, pooled=True, normalised=True),
        "conv3": _convolution(nn.Conv2d(256, 384, 3, padding=1), 0),
        "conv4": _convolution(nn.Conv2d(384, 384, 3, padding=1, groups=2), 1),
        "conv5": _convolution(nn.Conv2d(384, 256, 3, padding=1, groups=2), 1, pooled=True),
    }

    def fully_connected(features: int) -> Layers:
        layers = {"fc6": _fully_connected(features, dropout)}
        return layers if last == "fc6" else {**layers, "fc7": _fully_connected(4096, dropout)}

    return backbone(Layered("caffenet", channels, size, convolutions, fully_connected))


def _convolution(
    convolution: nn.Conv2d, bias: float, *, pooled: bool = False, normalised: bool = False
) -> nn.Sequential:
    _draw(convolution, 0.01, bias)
    parts: list[nn.Module] = [convolution, nn.ReLU(inplace=True)]
    parts += [nn.MaxPool2d(3, 2)] if pooled else []
    return nn.Sequential(*parts, *([nn.LocalResponseNorm(5)] if normalised else []))


def _fully_connected(features: int, dropout: float) -> nn.Sequential:
    layer = nn.Linear(features, 4096)
    _draw(layer, 0.005, 1)
    return nn.Sequential(layer, nn.ReLU(inplace=True), nn.Dropout(dropout))


def _draw(layer: nn.Conv2d | nn.Linear, std: float, bias: float) -> None:
    nn.init.normal_(layer.weight, 0, std)
    assert layer.bias is not None
    nn.init.constant_(layer.bias, bias)
