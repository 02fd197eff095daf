"""R50-C4 (He et al., ICCV 2017, as MoCo trains it): the last stage of a ResNet is run on every box."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor

from manyview.core.errors import UserError
from manyview.encoders import Encoder

HIDDEN = 256  # channels of the mask predictor


class C4Head(nn.Module):
    """The last stage, a batch norm after it (facebookresearch/moco, detection/train_net.py) and the mean over places:
    maps (R, C, 14, 14) of boxes to vectors (R, width)."""

    def __init__(self, stage: nn.Module, width: int) -> None:
        super().__init__()
        self.stage, self.norm = stage, nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.maps(x).mean((2, 3))

    def maps(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.stage(x))
        return normed


class C4MaskHead(nn.Module):
    """The maps (R, width, 7, 7) of the head that boxes have, which it shares, for masks.

    detectron2 takes the maps that were computed for the boxes; here they are computed again for the boxes with objects,
    so that in training their batch norm sees these alone.
    """

    def __init__(self, head: C4Head) -> None:
        super().__init__()
        self._maps = head.maps  # its weights are those of the box head

    def forward(self, x: Tensor) -> Tensor:
        return self._maps(x)


class C4MaskPredictor(MaskRCNNPredictor):  # type: ignore[misc]
    """Masks (R, classes, 14, 14) from maps (R, width, 7, 7): a transposed convolution, ReLU, and one of 1x1."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, HIDDEN, classes)


def c4_body(encoder: Encoder, stage: str, last: str) -> tuple[nn.Module, nn.Module]:
    """An encoder's network up to a stage, and the stage after it; refuses networks that cannot be cut there.

    The network must run its parts one after the other, as ResNets do.
    """
    network, size = encoder.network, 64
    names = [name for name, _ in network.named_children()]
    if stage not in names or last not in names:
        raise UserError("encoder", f"{encoder.name} cannot be cut before {last}, which C4 needs; use a ResNet, or FPN")
    body = IntermediateLayerGetter(network, {stage: "0"})
    before = [(each, each.training) for each in encoder.modules()]
    x = torch.linspace(-1, 1, encoder.options["channels"] * size * size).view(1, -1, size, size)
    with torch.no_grad():
        encoder.eval()
        maps = encoder.layers(x)
        whole = torch.allclose(body(x)["0"], maps[stage], atol=1e-5)
        whole = whole and torch.allclose(network.get_submodule(last)(maps[stage]), maps[last], atol=1e-5)
    for each, training in before:
        each.training = training
    if not whole:
        raise UserError("encoder", f"{encoder.name} does not run its parts in order, which C4 needs; use FPN")
    return body, network.get_submodule(last)
