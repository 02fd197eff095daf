"""What torchvision's detectors with a pyramid predict boxes, masks and keypoints with, as wide as a recipe says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

if TYPE_CHECKING:
    from manyview.transfer.rcnn import DetectorShape

Part = tuple[type[nn.Module], tuple[Any, ...]]
"""A class of torchvision and the arguments that it is made with."""

BOX_SIDE = 7  # of the maps that are cut out for boxes


def fpn_heads(shape: DetectorShape) -> Mapping[str, Part]:
    """The heads of a detector by the argument of torchvision that each of them is."""
    recipe, background = shape.recipe, 1
    classes = shape.classes + background
    found: dict[str, Part] = {
        "box_head": (TwoMLPHead, (recipe.width * BOX_SIDE**2, recipe.box_width)),
        "box_predictor": (FastRCNNPredictor, (recipe.box_width, classes)),
    }
    if shape.kind == "masks":
        layers = recipe.mask_layers
        found["mask_head"] = MaskRCNNHeads, (recipe.width, layers, 1)
        found["mask_predictor"] = MaskRCNNPredictor, (layers[-1], layers[-1], classes)
    if shape.kind == "keypoints":
        layers = recipe.keypoint_layers
        found["keypoint_head"] = KeypointRCNNHeads, (recipe.width, layers)
        found["keypoint_predictor"] = KeypointRCNNPredictor, (layers[-1], shape.keypoints)
    return found
