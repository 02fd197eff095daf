"""A trained detector elsewhere: the Python that makes it and loads its weights with torchvision alone."""

from __future__ import annotations

from collections.abc import Sequence

from torchvision.models import ResNet

from manyview.encoders import Encoder
from manyview.transfer.detection_heads import fpn_heads
from manyview.transfer.rcnn import MODELS, RATIOS, ROI_POOL, DetectorShape, fpn_anchors, pyramid_levels

IMPORTS = """import torch, torchvision
from safetensors.torch import load_file
from torchvision.models.detection import {model}
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign
"""


def torchvision_code(encoder: Encoder, shape: DetectorShape, classes: Sequence[str], weights: str) -> str | None:
    """The Python that makes a detector and loads its weights; None where torchvision has no such network.

    That is so of encoders that are not its ResNets, and of C4.
    """
    family, _, name = encoder.name.partition("/")
    if family != "torchvision" or not isinstance(encoder.network, ResNet) or shape.recipe.neck != "fpn":
        return None
    options = {key: value for key, value in encoder.options.items() if key not in ("channels", "size", "stem")}
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    cifar = [f"resnet.{part} = torch.nn.{getattr(encoder.network, part)}" for part in ("conv1", "maxpool")]
    levels = pyramid_levels(encoder)
    taken = {level.name: str(number) for number, level in enumerate(levels)}
    sizes = fpn_anchors(levels, shape.recipe)
    model = MODELS[shape.kind].__name__
    heads = fpn_heads(shape)
    lines = [
        IMPORTS.format(model=model),
        *(f"from {part.__module__} import {part.__name__}" for part, _ in heads.values()),
        f"resnet = torchvision.models.get_model({name!r}, weights=None{given})",
        *(cifar if encoder.options["stem"] else []),
        f"widths = {[level.channels for level in levels]}",
        f"backbone = BackboneWithFPN(resnet, {taken}, widths, {shape.recipe.width}, norm_layer=torch.nn.BatchNorm2d)",
        f"model = {model}(",
        "    backbone,",
        "    num_classes=None,",
        f"    rpn_anchor_generator=AnchorGenerator({sizes}, ({RATIOS},) * {len(sizes)}),",
        *(
            f"    {pool}=MultiScaleRoIAlign({list(taken.values())}, {side}, 2),"
            for pool, side in ROI_POOL[shape.kind].items()
        ),
        *(f"    {key}={part.__name__}{given!r}," for key, (part, given) in heads.items()),
        *(f"    {key}={value!r}," for key, value in shape.settings().items()),
        ")",
        f"model.load_state_dict(load_file({weights!r}))",
        "model.eval()  # images (3, H, W) as floats in [0, 1]: model([image])[0]",
        f"classes = {['background', *classes]!r}",
    ]
    return "\n".join(lines) + "\n"
