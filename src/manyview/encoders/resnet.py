"""ResNets of any width: x0.5, x1 and x2 a view, as CMC has them."""

from typing import Any, Literal

from timm.models.resnet import Bottleneck, ResNet

from manyview.core.errors import UserError
from manyview.encoders.backbone import Backbone, module_outputs
from manyview.encoders.layered import scaled

PLANES = (64, 128, 256, 512)
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def build(channels: int, size: int, depth: Literal[50, 101] = 50, width: float = 1.0) -> Backbone:
    """ResNet-50 or ResNet-101 (He et al., CVPR 2016) with so many times the channels in all stages: (B, 2048 width).

    The first convolution keeps its 64 channels, as in the authors' code (HobbitLong/CMC, models/resnet.py). The
    encoders of two views together have 12 M parameters with width 0.5, as Table 9 counts, 47 M with 1, 188 M with 2.
    With width 1 it is timm's network of that name.
    """
    if depth not in BLOCKS:
        raise UserError("depth", f"expected {' or '.join(map(str, BLOCKS))}, got {depth!r}")
    block: Any = Bottleneck  # which timm's annotation takes for a module
    network = ResNet(block, BLOCKS[depth], num_classes=0, in_chans=channels, channels=scaled(PLANES, width))
    return Backbone(network, module_outputs(["act1", "layer1", "layer2", "layer3", "layer4"]))
