from dataclasses import replace

import pytest
import torch
from torch import nn

from manyview import encoders
from manyview.core.errors import UserError
from manyview.encoders import Encoder
from manyview.transfer.detection_recipes import RECIPES, DetectionRecipe
from manyview.transfer.objects import Kind
from manyview.transfer.rcnn import DetectorShape, detector, fpn_anchors, precise_statistics, pyramid_levels

QUICK = replace(RECIPES["small"], regions=8, proposals=20)


def tiny() -> Encoder:
    return encoders.create("patchnet", size=64, widths=(8, 8, 16, 16))


def shape_of(kind: Kind = "boxes", recipe: DetectionRecipe = QUICK) -> DetectorShape:
    return DetectorShape(kind, 2, 3 if kind == "keypoints" else 0, (0.5,) * 3, (0.2,) * 3, recipe)


@pytest.mark.parametrize(
    ("name", "strides"),
    [("torchvision/resnet18", [4, 8, 16, 32]), ("timm/resnet10t", [4, 8, 16, 32]), ("patchnet", [4, 8, 16])],
)
def test_a_pyramid_stands_on_the_last_stage_of_each_stride(name: str, strides: list[int]) -> None:
    encoder = encoders.create(name, size=64)
    levels = pyramid_levels(encoder)
    maps = encoder.eval().layers(torch.zeros(1, 3, 128, 96))
    assert [level.stride for level in levels] == strides
    assert [(level.channels, 128 // level.stride) for level in levels] == [
        maps[each.name].shape[1:3] for each in levels
    ]
    assert list(maps)[-1] == levels[-1].name


def test_a_network_without_growing_strides_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="no feature maps of growing stride"):
        pyramid_levels(encoders.create("vit", size=32, depth=1, patch=8, width=32, heads=2))


def test_anchors_grow_with_the_stride_as_detectron2_has_them() -> None:
    levels = pyramid_levels(encoders.create("torchvision/resnet18", size=64))
    assert fpn_anchors(levels, RECIPES["coco-fpn-1x"]) == ((32,), (64,), (128,), (256,), (512,))


@pytest.mark.parametrize("kind", ["boxes", "masks", "keypoints"])
def test_every_detector_gives_losses_and_predictions(kind: Kind) -> None:
    model = detector(tiny(), shape_of(kind))
    target = {"boxes": torch.tensor([[4.0, 4, 30, 40]]), "labels": torch.tensor([1])}
    target["masks"] = torch.ones(1, 64, 64, dtype=torch.uint8)
    target["keypoints"] = torch.tensor([[[5.0, 5, 2], [20, 20, 2], [0, 0, 0]]])
    losses = model([torch.rand(3, 64, 64)], [target])
    assert torch.stack(list(losses.values())).isfinite().all()
    assert len(losses) == 4 + (kind != "boxes")
    torch.stack(list(losses.values())).sum().backward()
    assert all(each.grad is not None for each in model.parameters())
    model.roi_heads.detections_per_img = 2  # type: ignore[union-attr]
    found = model.eval()([torch.rand(3, 64, 64)])[0]
    assert {"boxes", "labels", "scores"} <= found.keys()


def test_the_encoder_inside_is_the_one_given_and_the_pyramid_has_batch_norm() -> None:
    encoder = tiny()
    model = detector(encoder, shape_of())
    own = {id(each) for each in model.parameters()}
    assert all(id(each) in own for each in encoder.parameters())
    fpn = model.backbone.fpn  # type: ignore[union-attr]
    assert any(isinstance(each, nn.BatchNorm2d) for each in fpn.modules())  # type: ignore[union-attr]


def test_precise_statistics_are_the_mean_over_batches() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3, momentum=0.3)

        def forward(self, images: torch.Tensor, targets: object) -> torch.Tensor:
            normed: torch.Tensor = self.norm(images)
            return normed

    model, batches = Normed(), [torch.randn(2, 3, 4, 4) + number for number in range(3)]
    precise_statistics(model, [(each, None) for each in batches])
    assert torch.allclose(model.norm.running_mean, torch.stack([each.mean((0, 2, 3)) for each in batches]).mean(0))  # type: ignore[arg-type]
    assert model.norm.momentum == 0.3
