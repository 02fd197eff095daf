import copy

import pytest
import torch

from manyview import encoders
from manyview.core.errors import UserError
from manyview.transfer.c4 import C4Head, c4_body
from manyview.transfer.detection_recipes import RECIPES
from manyview.transfer.rcnn import detector
from tests.transfer.test_rcnn import shape_of, tiny


def test_the_body_and_the_last_stage_are_the_network_cut_in_two() -> None:
    encoder = encoders.create("torchvision/resnet18", size=64).eval()
    body, last = c4_body(encoder, "layer3", "layer4")
    x = torch.rand(1, 3, 64, 64)
    assert torch.allclose(last(body(x)["0"]).mean((2, 3)), encoder(x), atol=1e-5)


def test_a_network_that_cannot_be_cut_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be cut"):
        c4_body(tiny(), "stage3", "stage9")


def test_the_head_is_the_last_stage_with_one_more_batch_norm() -> None:
    stage = torch.nn.Conv2d(4, 6, 3, stride=2, padding=1)
    head = C4Head(stage, 6)
    x = torch.rand(5, 4, 14, 14)
    expected = torch.nn.functional.batch_norm(stage(x), None, None, training=True).mean((2, 3))
    assert torch.allclose(head(x), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["boxes", "masks"])
def test_c4_gives_losses_and_its_masks_share_the_stage_of_its_boxes(kind: str) -> None:
    recipe = RECIPES["voc-c4-24k"]
    model = copy.deepcopy(detector(tiny(), shape_of(kind, recipe)))  # type: ignore[arg-type]
    model.transform.min_size = (64,)  # type: ignore[union-attr]
    target = {"boxes": torch.tensor([[4.0, 4, 60, 60]]), "labels": torch.tensor([1])}
    target["masks"] = torch.ones(1, 64, 64, dtype=torch.uint8)
    losses = model([torch.rand(3, 64, 64)], [target])
    torch.stack(list(losses.values())).sum().backward()
    assert all(each.grad is not None for each in model.parameters())
    stages = [name for name in model.state_dict() if name.endswith("stage.0.conv1.weight")]
    assert stages == ["roi_heads.box_head.stage.0.conv1.weight"]


def test_keypoints_with_c4_are_refused() -> None:
    with pytest.raises(UserError, match="keypoints with C4"):
        detector(tiny(), shape_of("keypoints", RECIPES["coco-c4-1x"]))
