"""A transfer in two processes goes where one process goes, and the first one alone writes."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.cli import main as cli
from manyview.core.errors import UserError
from manyview.embeddings.open_model import open_model
from manyview.encoders import create
from manyview.evaluate.results import read
from manyview.transfer import detect, segment
from manyview.transfer.fit import fit
from manyview.transfer.prepared import DataSource, Start
from tests.transfer.made_objects import coco, write_coco
from tests.transfer.pictures import folder
from tests.two_processes import Found, in_two_processes

CPU = torch.device("cpu")
FEW: dict[str, Any] = {"epochs": 2, "width": 8, "batch_size": 6, "ignore": (0,)}  # so that shares have unequal pixels
DETECTOR: dict[str, Any] = {"steps": 3, "batch_size": 3, "side": 32}


def start() -> Start:
    torch.manual_seed(0)
    return Start(open_model(create("patchnet", size=32, widths=(8, 16), blocks=(1, 1))), 0, CPU, workers=0)


def segmented(data: Path, out: Path, rank: int = 0) -> Found:
    """The weights of all of a network after two long steps of SGD, and its scores."""
    prepared = segment.segment(DataSource(str(data), {}), frozen=False, **FEW)
    training = prepared.training(start())
    training = replace(training, optimizer=torch.optim.SGD(training.model.parameters(), lr=0.5))
    fit(training, out)
    scores = torch.tensor(list(training.score().values()), dtype=torch.float64)
    return {"scores": scores, **{name: each.clone() for name, each in training.model.state_dict().items()}}


def detected(data: Path, out: Path, rank: int = 0) -> Found:
    prepared = detect.detect(DataSource(str(data), {}), **DETECTOR)
    training = prepared.training(start())
    training.model.roi_heads.detections_per_img = 2  # type: ignore[union-attr]
    fit(training, out)
    scores = torch.tensor(list(training.score().values()), dtype=torch.float64)
    return {"scores": scores, **{name: each.clone() for name, each in training.model.state_dict().items()}}


def commanded(data: Path, out: Path, rank: int) -> Found:
    """The whole command, and what it prints."""
    printed = io.StringIO()
    words = ["transfer", "patchnet", "--size", "32", "--task", "segment", "--data", str(data), "--out", str(out)]
    with redirect_stdout(printed):
        code = cli.main([*words, "--epochs", "1", "--width", "8", "--batch-size", "4", "--workers", "0", "--quiet"])
    return {"code": code, "printed": printed.getvalue()}


def test_weights_and_scores_of_a_segmentation_are_those_of_one_process(tmp_path: Path) -> None:
    data = folder(tmp_path / "data", 8)
    first, second = in_two_processes(partial(segmented, data, tmp_path / "two"), tmp_path)
    alone = segmented(data, tmp_path / "one")
    for name, each in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], each, rtol=1e-3, atol=1e-2 if name == "scores" else 1e-4)
    assert float(alone["scores"][0]) > 0


def test_a_detector_is_the_same_in_both_processes(tmp_path: Path) -> None:
    data = write_coco(tmp_path / "data", coco(5), coco(3))
    first, second = in_two_processes(partial(detected, data, tmp_path / "two"), tmp_path)
    for name, each in first.items():
        assert torch.equal(each, second[name]), name
    norm: Tensor = first["backbone.fpn.layer_blocks.0.1.running_mean"]
    assert float(norm.abs().sum()) > 0


def test_the_first_process_alone_writes_and_speaks(tmp_path: Path) -> None:
    data = folder(tmp_path / "data", 8)
    first, second = in_two_processes(partial(commanded, data, tmp_path / "out"), tmp_path)
    assert (first["code"], second["code"]) == (0, 0)
    assert "miou" in first["printed"]
    assert second["printed"] == ""
    (result,) = read(tmp_path / "out")
    assert result.supervised is not None
    homes = [each for each in (tmp_path / "out").iterdir() if each.is_dir()]
    assert len(homes) == 2
    assert all(len((home / "metrics.jsonl").read_text().splitlines()) >= 1 for home in homes)


def too_small(data: Path, rank: int) -> Found:
    prepared = detect.detect(DataSource(str(data), {}), **{**DETECTOR, "batch_size": 1})
    with pytest.raises(UserError, match="2 processes need a batch of as many images"):
        prepared.training(start())
    return {}


def test_a_batch_with_less_than_an_image_for_each_process_is_refused(tmp_path: Path) -> None:
    in_two_processes(partial(too_small, write_coco(tmp_path / "data", coco(4), coco(1))), tmp_path)
