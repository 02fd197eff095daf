"""torchvision's Faster, Mask and Keypoint R-CNN on top of any encoder with feature maps of growing stride."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models.detection import FasterRCNN, KeypointRCNN, MaskRCNN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from manyview.core.errors import UserError
from manyview.encoders import Encoder
from manyview.transfer.c4 import C4Head, C4MaskHead, C4MaskPredictor, c4_body
from manyview.transfer.detection_heads import BOX_SIDE, fpn_heads
from manyview.transfer.detection_recipes import DetectionRecipe
from manyview.transfer.objects import Kind

FINEST = 4  # the stride of the first map that boxes are looked for in
RATIOS = (0.5, 1.0, 2.0)
SCALES = (2, 4, 8, 16, 32)  # of C4's anchors, times the stride of 16: 32 to 512 pixels
ROI_POOL = {
    "boxes": {"box_roi_pool": BOX_SIDE},
    "masks": {"box_roi_pool": BOX_SIDE, "mask_roi_pool": 14},
    "keypoints": {"box_roi_pool": BOX_SIDE, "keypoint_roi_pool": 14},
}  # the sides of the maps that are cut out of the pyramid for each box
MODELS = {"boxes": FasterRCNN, "masks": MaskRCNN, "keypoints": KeypointRCNN}


@dataclass(frozen=True)
class Level:
    """A stage whose feature map a detector sees: its name, how many channels, and pixels of the image a place."""

    name: str
    channels: int
    stride: int


@dataclass(frozen=True)
class DetectorShape:
    """All that makes a detector besides its encoder, so that it can be made again elsewhere.

    classes     of objects, without the background
    keypoints   of an object
    mean, std   that pictures in [0, 1] are normalised with
    """

    kind: Kind
    classes: int
    keypoints: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    recipe: DetectionRecipe

    def __post_init__(self) -> None:
        check_neck(self.kind, self.recipe)

    def settings(self) -> dict[str, Any]:
        """The plain arguments of torchvision's detector."""
        recipe = self.recipe
        train, test = recipe.proposed
        found: dict[str, Any] = {
            "min_size": recipe.sides,
            "max_size": recipe.longest,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
            "rpn_pre_nms_top_n_train": train,
            "rpn_pre_nms_top_n_test": test,
            "rpn_post_nms_top_n_train": recipe.proposals,
            "box_batch_size_per_image": recipe.regions,
        }
        return found


def check_neck(kind: Kind, recipe: DetectionRecipe) -> None:
    """Refuses a recipe that cannot find objects of a kind."""
    if kind == "keypoints" and recipe.neck == "c4":
        raise UserError("recipe", "no paper finds keypoints with C4; use a recipe with a pyramid, such as coco-fpn-1x")


class Pyramid(nn.Module):
    """An encoder's feature maps of growing stride, brought to as many channels each (FPN, Lin et al., CVPR 2017), with
    batch norm on its layers, and a map of twice the last stride.

    The names of its weights are those of torchvision's `BackboneWithFPN`, and the encoder's are its library's.
    """

    def __init__(self, encoder: Encoder, levels: list[Level], width: int) -> None:
        super().__init__()
        self.body = encoder.network
        self._maps = encoder.embed_with_maps  # a method, not a module: the weights are in `body`
        self._names = [level.name for level in levels]
        widths = [level.channels for level in levels]
        self.fpn = FeaturePyramidNetwork(widths, width, LastLevelMaxPool(), norm_layer=nn.BatchNorm2d)
        self.out_channels = width

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        maps = self._maps(x, self._names)[1]
        found: dict[str, Tensor] = self.fpn({str(number): maps[name] for number, name in enumerate(self._names)})
        return found


def pyramid_levels(encoder: Encoder) -> list[Level]:
    """The last stage of each stride from 4 on, up to the coarsest; a network with a single stride has none to offer."""
    size = encoder.options["size"]
    found: dict[int, Level] = {}
    for name, shape in encoder.layer_shapes().items():
        if len(shape) != 3:
            continue
        stride = 2 ** round(log2(size / shape[1]))
        found[stride] = Level(name, shape[0], stride)
    strides = [stride for stride in found if stride >= FINEST]
    if len(found) < 2 or not strides or strides != sorted(strides) or encoder.crop is not None:
        line = "its stages have no feature maps of growing stride, which a detector needs; use a ResNet or alike"
        raise UserError("encoder", f"{encoder.name}: {line}")
    return [found[stride] for stride in strides]


def detector(encoder: Encoder, shape: DetectorShape) -> nn.Module:
    """A detector of objects on top of an encoder, all of which is trained."""
    parts = _c4_parts(encoder, shape) if shape.recipe.neck == "c4" else _fpn_parts(encoder, shape)
    backbone = parts.pop("backbone")
    model: nn.Module = MODELS[shape.kind](backbone, **parts, **shape.settings())
    return model.requires_grad_(True)


def fpn_anchors(levels: list[Level], recipe: DetectionRecipe) -> tuple[tuple[int, ...], ...]:
    """The sides of anchors: one for each map of the pyramid, the last of which is the pooled one."""
    strides = [*(level.stride for level in levels), 2 * levels[-1].stride]
    return tuple((round(recipe.anchor * stride),) for stride in strides)


def _fpn_parts(encoder: Encoder, shape: DetectorShape) -> dict[str, Any]:
    levels = pyramid_levels(encoder)
    names = [str(number) for number in range(len(levels))]
    sizes = fpn_anchors(levels, shape.recipe)
    return {
        "backbone": Pyramid(encoder, levels, shape.recipe.width),
        "num_classes": None,
        "rpn_anchor_generator": AnchorGenerator(sizes, (RATIOS,) * len(sizes)),
        **{pool: MultiScaleRoIAlign(names, side, 2) for pool, side in ROI_POOL[shape.kind].items()},
        **{name: made(*given) for name, (made, given) in fpn_heads(shape).items()},
    }


def _c4_parts(encoder: Encoder, shape: DetectorShape) -> dict[str, Any]:
    levels = pyramid_levels(encoder)
    if len(levels) < 2:
        raise UserError("encoder", f"{encoder.name} has too few stages for C4; use a recipe with a pyramid")
    body, last = c4_body(encoder, levels[-2].name, levels[-1].name)
    body.out_channels = levels[-2].channels  # type: ignore[assignment]
    head = C4Head(last, levels[-1].channels)
    sizes = (tuple(scale * levels[-2].stride for scale in SCALES),)
    parts = {
        "backbone": body,
        "num_classes": None,
        "rpn_anchor_generator": AnchorGenerator(sizes, (RATIOS,)),
        "box_roi_pool": MultiScaleRoIAlign(["0"], 14, 2),
        "box_head": head,
        "box_predictor": FastRCNNPredictor(levels[-1].channels, shape.classes + 1),
    }
    if shape.kind == "masks":
        parts |= {
            "mask_roi_pool": MultiScaleRoIAlign(["0"], 14, 2),
            "mask_head": C4MaskHead(head),
            "mask_predictor": C4MaskPredictor(levels[-1].channels, shape.classes + 1),
        }
    return parts


@torch.no_grad()
def precise_statistics(model: nn.Module, batches: Any) -> None:
    """Gives all batch norms the mean statistics of some batches, in place of those that run along in training."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # all batches count alike
    try:
        model.train()
        for images, targets in batches:
            model(images, targets)
    finally:
        for norm, momentum in zip(norms, kept, strict=True):
            norm.momentum = momentum
