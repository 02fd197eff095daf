"""Networks of named layers, one after the other, for images of one size: AlexNet and its like."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.encoders.backbone import Backbone, module_outputs

Layers = Mapping[str, nn.Module]


class Layered(nn.Module):
    """Layers of feature maps, then fully connected ones, each by its name: (B, C, size, size) to the last one's output.

    fully_connected  makes the layers after the maps from the number of features that these have together
    """

    def __init__(
        self, name: str, channels: int, size: int, convolutions: Layers, fully_connected: Callable[[int], Layers]
    ) -> None:
        super().__init__()
        self.name, self.size = name, size
        for layer, part in convolutions.items():
            self.add_module(layer, part)
        features = self._features(channels)
        self.add_module("flatten", nn.Flatten())
        for layer, part in fully_connected(features).items():
            self.add_module(layer, part)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != (self.size, self.size):
            height, width = x.shape[2:]
            raise UserError(
                "x",
                f"{self.name} was made for {self.size} x {self.size} images, got {height} x {width}; "
                f"create it with the size of the images",
            )
        return self._through(x)

    def _through(self, x: Tensor) -> Tensor:
        for part in self.children():
            x = part(x)
        return x

    @torch.no_grad()
    def _features(self, channels: int) -> int:
        """Says how many numbers an image's last feature map has."""
        try:
            return self.eval()._through(torch.zeros(1, channels, self.size, self.size)).numel()
        except RuntimeError:
            said = f"{self.size} x {self.size} images are too small for {self.name}; give larger ones"
            raise UserError("size", said) from None
        finally:
            self.train()


def scaled(widths: tuple[int, ...], width: float) -> tuple[int, ...]:
    """Multiplies the channels of each layer: by 0.5 for half a network."""
    found = tuple(round(width * each) for each in widths)
    if min(found) < 1:
        raise UserError("width", f"expected a number above 0, such as 0.5, got {width}")
    return found


def backbone(network: Layered) -> Backbone:
    """The network with all its layers to read."""
    return Backbone(network, module_outputs([name for name, _ in network.named_children() if name != "flatten"]))
