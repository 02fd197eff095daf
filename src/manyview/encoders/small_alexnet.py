"""SmallAlexNet, the network of the CIFAR and STL-10 experiments of CACR and of alignment and uniformity."""

from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders.backbone import Backbone, module_outputs

WIDTHS = (96, 192, 384, 384, 192)
POOLED = (True, True, False, False, True)  # a max-pool after convolutions 1, 2 and 5
HIDDEN = 4096


class SmallAlexNet(nn.Module):
    """AlexNet with 3x3 convolutions for small images (Wang & Isola, ICML 2020; CACR App. C.1).

    Convolutions 96-192-384-384-192 and fc6, fc7 of 4096 units, each without bias, then batch norm and ReLU; max-pool
    3/2 after convolutions 1, 2 and 5. All weights are drawn from N(0, 0.02^2).

    The representation is fc7 (B, 4096), the layer -2 that the papers' linear probe reads, so `out_dim` is None and the
    last layer is the head: `linear` to 128. With out_dim=128 the published network is whole, fc8 with its bias
    included: 27,221,088 parameters at 32 px, 58,678,368 at 64 px.
    """

    def __init__(self, channels: int, size: int, out_dim: int | None) -> None:
        super().__init__()
        self.size = size
        side = size
        for number, (width, pooled) in enumerate(zip(WIDTHS, POOLED, strict=True), start=1):
            self.add_module(f"conv{number}", _convolution(channels, width, pooled))
            channels, side = width, (side - 1) // 2 if pooled else side
        if side < 1:
            raise UserError("size", f"small_alexnet needs images of at least 15 x 15, got {size} x {size}")
        self.add_module("flatten", nn.Flatten())
        self.add_module("fc6", _fully_connected(channels * side * side))
        self.add_module("fc7", _fully_connected(HIDDEN))
        if out_dim is not None:
            self.add_module("fc8", nn.Linear(HIDDEN, out_dim))
        self.apply(_draw)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != (self.size, self.size):
            height, width = x.shape[2:]
            raise UserError(
                "x",
                f"small_alexnet was made for {self.size} x {self.size} images, got {height} x {width}; "
                f"create it with the size of the images",
            )
        for part in self.children():
            x = part(x)
        return x


def build(channels: int, size: int, out_dim: int | None = None) -> Backbone:
    network = SmallAlexNet(channels, size, out_dim)
    return Backbone(network, module_outputs([name for name, _ in network.named_children() if name != "flatten"]))


def _convolution(channels: int, width: int, pooled: bool) -> nn.Sequential:
    parts = [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, *([nn.MaxPool2d(3, 2)] if pooled else []))


def _fully_connected(features: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, HIDDEN, bias=False), nn.BatchNorm1d(HIDDEN), nn.ReLU(inplace=True))


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d | nn.Linear):
        nn.init.normal_(module.weight, 0, 0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
