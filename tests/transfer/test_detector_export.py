from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from manyview import encoders
from manyview.transfer.detection_recipes import RECIPES
from manyview.transfer.detector_export import torchvision_code
from manyview.transfer.objects import Kind
from manyview.transfer.rcnn import detector
from tests.transfer.test_rcnn import shape_of, tiny


@pytest.mark.parametrize(("kind", "stem"), [("boxes", "cifar"), ("masks", None), ("keypoints", None)])
def test_torchvision_alone_makes_the_same_predictions(tmp_path: Path, kind: Kind, stem: str | None) -> None:
    encoder = encoders.create("torchvision/resnet18", size=64, stem=stem)  # type: ignore[arg-type]
    model, shape = detector(encoder, shape_of(kind)), shape_of(kind)
    with torch.no_grad():
        for name, each in model.named_buffers():
            if name.endswith("running_mean"):
                each.normal_(0, 0.1)
    file = tmp_path / "model.safetensors"
    save_file({name: each.contiguous() for name, each in model.state_dict().items()}, file)
    code = torchvision_code(encoder, shape, ["cat", "dog"], str(file))
    assert code is not None
    assert "manyview" not in code.replace(str(tmp_path), "")
    made: dict[str, object] = {}
    exec(code, made)
    image = torch.rand(3, 64, 80)
    made_there: Any = made["model"]
    both: list[Any] = [model.eval(), made_there]
    for each in both:
        each.roi_heads.score_thresh, each.roi_heads.detections_per_img = 0.0, 2
    with torch.no_grad():
        ours, theirs = model([image])[0], made_there([image])[0]
    assert len(ours["boxes"]) > 0
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert made["classes"] == ["background", "cat", "dog"]


def test_what_torchvision_does_not_have_has_no_code() -> None:
    assert torchvision_code(tiny(), shape_of(), ["a", "b"], "x") is None
    resnet = encoders.create("torchvision/resnet18", size=64)
    assert torchvision_code(resnet, shape_of(recipe=RECIPES["coco-c4-1x"]), ["a", "b"], "x") is None
