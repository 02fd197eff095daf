from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torchvision.models.detection import FasterRCNN, KeypointRCNN, MaskRCNN

from manyview.transfer.detection_heads import fpn_heads
from manyview.transfer.detection_recipes import RECIPES
from manyview.transfer.objects import Kind
from manyview.transfer.rcnn import detector
from tests.transfer.test_rcnn import shape_of, tiny

MODELS = {"boxes": FasterRCNN, "masks": MaskRCNN, "keypoints": KeypointRCNN}


@pytest.mark.parametrize("kind", ["boxes", "masks", "keypoints"])
def test_the_papers_heads_are_torchvisions_own(kind: Kind) -> None:
    shape = shape_of(kind, replace(RECIPES["coco-fpn-1x"], regions=8, proposals=20))
    ours = detector(tiny(), shape)
    more = {"num_keypoints": 3} if kind == "keypoints" else {}
    anchors: Any = ours.rpn
    theirs = MODELS[kind](ours.backbone, num_classes=3, rpn_anchor_generator=anchors.anchor_generator, **more)
    shapes = [{name: each.shape for name, each in model.state_dict().items()} for model in (ours, theirs)]
    assert shapes[0] == shapes[1]


def test_a_small_recipe_has_small_heads() -> None:
    small, large = (
        sum(each.numel() for name, (made, given) in fpn_heads(shape_of("keypoints", RECIPES[recipe])).items()
            for each in made(*given).parameters())
        for recipe in ("small", "coco-fpn-1x")
    )  # fmt: skip
    assert 10 * small < large
