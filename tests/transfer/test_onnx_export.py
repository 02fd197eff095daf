"""What onnxruntime makes of a trained task is what torch makes of it, on other images than it was traced with."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders import create
from manyview.transfer.decoders import UNet
from manyview.transfer.objects import Kind
from manyview.transfer.onnx_export import FOUND, export_detector, export_segmenter
from manyview.transfer.rcnn import detector
from manyview.transfer.segmenter import Segmenter
from tests.transfer.test_rcnn import shape_of, tiny

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize("kind", ["boxes", "masks", "keypoints"])
def test_a_detector_finds_the_same_in_images_of_other_sizes(kind: Kind, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = detector(tiny(), shape_of(kind)).eval()
    model.roi_heads.score_thresh, model.roi_heads.detections_per_img = 0.0, 4  # type: ignore[union-attr]
    export_detector(model, kind, torch.rand(3, 80, 96), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [each.name for each in session.get_outputs()] == list(FOUND[kind])
    for size in ((80, 96), (64, 100)):
        image = torch.rand(3, *size)
        with torch.no_grad():
            ours = model([image])[0]
        assert len(ours["boxes"]) == 4
        for name, found in zip(FOUND[kind], session.run(None, {"image": image.numpy()}), strict=True):
            np.testing.assert_allclose(found, ours[name].numpy(), atol=1e-3, rtol=1e-4)


def test_a_segmenter_of_two_views_gives_the_same_scores_for_any_number_of_pictures(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoders = {name: create("patchnet", size=32, channels=channels, widths=(8, 16), blocks=(1, 1))
                for name, channels in (("rgb", 3), ("thermal", 1))}  # fmt: skip
    model = Segmenter(encoders, partial(UNet, size=32, classes=5, width=8), frozen=True).eval()
    views = [torch.rand(2, 3, 32, 32), torch.rand(2, 1, 32, 32)]
    export_segmenter(model, views, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    given = {"rgb": torch.rand(3, 3, 32, 32), "thermal": torch.rand(3, 1, 32, 32)}
    with torch.no_grad():
        ours = model({name: [each] for name, each in given.items()})
    (found,) = session.run(["scores"], {name: each.numpy() for name, each in given.items()})
    np.testing.assert_allclose(found, ours.numpy(), atol=1e-4)


def test_what_cannot_be_written_is_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, images: object) -> None:
            raise RuntimeError("cannot\nbe traced")

    with pytest.raises(UserError, match="onnx: this model cannot be written as ONNX") as caught:
        export_detector(Odd(), "boxes", torch.rand(3, 32, 32), tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
