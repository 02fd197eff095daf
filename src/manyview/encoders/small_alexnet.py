"""SmallAlexNet, the network of the CIFAR and STL-10 experiments of CACR, of CMC and of alignment and uniformity."""

from torch import nn

from manyview.encoders.backbone import Backbone
from manyview.encoders.layered import Layered, Layers, backbone, scaled

WIDTHS = (96, 192, 384, 384, 192)
POOLED = (True, True, False, False, True)  # a max-pool after convolutions 1, 2 and 5
HIDDEN = 4096


def build(channels: int, size: int, out_dim: int | None = None, width: float = 1.0) -> Backbone:
    """AlexNet with 3x3 convolutions for small images (Wang & Isola, ICML 2020; CACR App. C.1).

    Convolutions 96-192-384-384-192 and fc6, fc7 of 4096 units, each without bias, then batch norm and ReLU; max-pool
    3/2 after convolutions 1, 2 and 5. All weights are drawn from N(0, 0.02^2).

    The representation is fc7 (B, 4096), the layer -2 that the papers' linear probe reads, so `out_dim` is None and the
    last layer is the head: `linear` to 128. With out_dim=128 the published network is whole, fc8 with its bias
    included: 27,221,088 parameters at 32 px, 58,678,368 at 64 px.

    width  so many times the channels and units: with 0.5 and images of 64 px it is the half AlexNet of CMC (Table 10),
           one a view, whose fc8 has 64 units
    """
    widths, (hidden,) = scaled(WIDTHS, width), scaled((HIDDEN,), width)
    convolutions, before = {}, channels
    for number, (after, pooled) in enumerate(zip(widths, POOLED, strict=True), start=1):
        convolutions[f"conv{number}"] = _convolution(before, after, pooled)
        before = after

    def fully_connected(features: int) -> Layers:
        layers: dict[str, nn.Module] = {
            "fc6": _fully_connected(features, hidden),
            "fc7": _fully_connected(hidden, hidden),
        }
        return layers if out_dim is None else {**layers, "fc8": nn.Linear(hidden, out_dim)}

    network = Layered("small_alexnet", channels, size, convolutions, fully_connected)
    network.apply(_draw)
    return backbone(network)


def _convolution(channels: int, width: int, pooled: bool) -> nn.Sequential:
    parts = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, *([nn.MaxPool2d(3, 2)] if pooled else []))


def _fully_connected(features: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True))


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.normal_(module.weight, 0, 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
