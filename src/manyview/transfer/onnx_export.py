"""A trained task as ONNX: detectors of images of any size, segmenters of views of the encoder's size."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.transfer.objects import Kind
from manyview.transfer.segmenter import Segmenter

FILE = "model.onnx"
OPSET = 16  # the first in which boxes are cut out of maps as torchvision does it
FOUND: dict[Kind, tuple[str, ...]] = {
    "boxes": ("boxes", "labels", "scores"),
    "masks": ("boxes", "labels", "scores", "masks"),
    "keypoints": ("boxes", "labels", "scores", "keypoints", "keypoints_scores"),
}
"""What a detector gives, in the order of torchvision's."""


def check_onnx() -> None:
    """Refuses where what writes ONNX is not installed."""
    missing = [package for package in ("onnx", "onnxscript") if find_spec(package) is None]
    if missing:
        raise UserError("onnx", f'needs {" and ".join(missing)}; pip install "manyview[export]"')


def export_detector(model: nn.Module, kind: Kind, image: Tensor, path: Path) -> None:
    """Writes a detector of torchvision: "image" (3, H, W) of floats in [0, 1], of any size, to what it finds in it.

    image  one to trace it with, in which something is found if possible
    """
    network = _ready(model)
    with atomic_write(path) as draft, _quietly():
        torch.onnx.export(  # the tracing exporter, which torchvision's detectors are written for
            network, ([image.cpu().float()],), str(draft), dynamo=False, opset_version=OPSET, input_names=["image"],
            output_names=list(FOUND[kind]), dynamic_axes={"image": {1: "height", 2: "width"}},
        )  # fmt: skip


def export_segmenter(model: Segmenter, views: Sequence[Tensor], path: Path) -> None:
    """Writes a segmenter: its views (B, C, H, W) by their names to "scores" (B, classes, H, W), for any B.

    views  some rows of each view, in the order of the segmenter's
    """
    network = _Views(_ready(model), model.views).eval()
    given = tuple(each.cpu().float() for each in views)
    with atomic_write(path) as draft, _quietly():
        program = torch.onnx.export(
            network, given, input_names=list(model.views), output_names=["scores"], dynamo=True, verbose=False,
            dynamic_shapes=(tuple({0: torch.export.Dim("batch")} for _ in given),), external_data=False,
        )  # fmt: skip
        assert program is not None
        program.save(draft, external_data=False)


class _Views(nn.Module):
    """A segmenter that takes its views one after the other."""

    def __init__(self, segmenter: nn.Module, views: Sequence[str]) -> None:
        super().__init__()
        self.segmenter, self.views = segmenter, tuple(views)

    def forward(self, *views: Tensor) -> Tensor:
        scores: Tensor = self.segmenter({name: [each] for name, each in zip(self.views, views, strict=True)})
        return scores


def _ready(model: nn.Module) -> Any:
    return copy.deepcopy(model).cpu().float().eval()


class _quietly(warnings.catch_warnings):
    """Without the exporters' warnings, which are about torch's own insides; what they cannot do is one line."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, Exception) and not isinstance(error, OSError | MemoryError | UserError):
            why = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError("onnx", f"this model cannot be written as ONNX: {why}") from error
