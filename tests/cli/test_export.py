"""`manyview export`: a run's encoder, as others load it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import manyview
from manyview.cli import main as cli
from manyview.encoders import load as load_encoder
from manyview.training.run import encoder_files
from tests.cli.said import one_line
from tests.tiny import many_views, pretrain, sensors


def test_a_run_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert pretrain(run, "--quiet", max_steps=1) == 0
    assert cli.main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "net.safetensors")]) == 0
    assert f"wrote {tmp_path / 'net.safetensors'}" in capsys.readouterr().out
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(load_encoder(tmp_path / "net.safetensors").eval()(x), manyview.load(run)(x))
    assert cli.main(["export", str(run), "--to", "onx"]) == 2
    one_line(capsys, "to: expected one of timm, torchvision, safetensors, onnx, hub, got 'onx'")
    assert cli.main(["export", str(tmp_path), "--to", "onnx"]) == 2
    one_line(capsys, "is no run's folder")


@pytest.mark.parametrize("to", ["timm", "torchvision", "onnx"])
def test_a_run_is_loaded_by_its_own_library_with_the_lines_that_export_prints(
    to: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = {"timm": "timm/test_resnet", "torchvision": "torchvision/squeezenet1_1"}.get(to, "patchnet")
    assert pretrain(tmp_path, "--quiet", encoder=encoder, encoder__options="{}", max_steps=1) == 0
    capsys.readouterr()
    assert cli.main(["export", str(tmp_path), "--to", to]) == 0
    found: dict[str, Any] = {}
    exec(capsys.readouterr().out.partition("\n")[2], found)  # after "wrote ..."
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        theirs = torch.from_numpy(found["embed"](x.numpy())) if to == "onnx" else found["model"](x)
        torch.testing.assert_close(theirs, manyview.load(tmp_path)(x), rtol=1e-5, atol=1e-5)


def test_a_folder_for_hubs_is_loaded_by_timm_and_sees_files_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, hub = tmp_path / "run", tmp_path / "hub"
    size = {"augmentation__size": 96, "max_steps": 1}
    assert pretrain(run, "--quiet", encoder="timm/test_resnet", encoder__options="{}", **size) == 0
    capsys.readouterr()
    assert cli.main(["export", str(run), "--to", "hub", "--out", str(hub)]) == 0
    found: dict[str, Any] = {}
    exec(capsys.readouterr().out.partition("\n")[2], found)  # after "wrote ..."
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8))
    encoder = manyview.load(run)
    assert encoder.preprocess is not None
    ours, theirs = encoder.preprocess(picture), found["transform"](picture)[None]
    assert theirs.shape == ours.shape == (1, 3, 96, 96)
    assert (ours - theirs).abs().mean() < 0.03  # of a std of noise: rounded to 8 bits, they differ a little
    with torch.no_grad():
        torch.testing.assert_close(found["model"](ours), encoder(ours), rtol=1e-5, atol=1e-5)
    assert "# test\\_resnet, dcl" in (hub / "README.md").read_text()


def test_of_a_run_with_several_views_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = many_views(tmp_path / "run", sensors(tmp_path / "data", 8), max_steps=1)
    capsys.readouterr()
    assert cli.main(["export", str(many), "--to", "safetensors"]) == 2
    one_line(capsys, "has an encoder for rgb, thermal, depth; give one of them, --view rgb")
    assert cli.main(["export", str(many), "--to", "safetensors", "--view", "depth"]) == 0
    said = capsys.readouterr()
    file = many / "exported-depth-safetensors.safetensors"
    assert f"wrote {file}" in said.out
    assert said.err == ""
    assert "# preprocessing: x is 1 channel of 16 bits or floats in the unit of the files, not scaled; NaN" in said.out
    assert ", mean and std of depth in training\n" in said.out
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(load_encoder(file).eval()(x), manyview.load(many, "depth")(x))
    assert file not in encoder_files(many)  # which are taken for what the run itself has written
