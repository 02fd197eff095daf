from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import manyview
from manyview.config.resolve import resolve
from manyview.training import build
from manyview.training.run import Run
from manyview.training.start import weights_lines
from tests.tiny import ENCODER, pretrain, sensors

VIT = "{patch_size: 16, depth: 2, embed_dim: 12, num_heads: 2}"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder of a run of a second."""
    out = tmp_path_factory.mktemp("first") / "run"
    assert pretrain(out, "--quiet", epochs=1) == 0
    return out / "encoder.safetensors"


def said(flags: dict[str, Any]) -> list[str]:
    config = resolve({}, {"data.name": "scenes", "augmentation.size": 32, "encoder.options": ENCODER, **flags})
    return weights_lines(config, build.unstarted(config, {"image": 3}))


def test_the_learning_rate_from_weights_is_said_and_a_lower_one_as_a_share_of_the_usual(weights: Path) -> None:
    (line,) = said({"encoder.pretrained": str(weights)})
    assert line == f"it starts from {weights}; learning rate 0.001 (--lr, --schedule.warmup)"
    (line,) = said({"encoder.pretrained": str(weights), "optimizer.lr": 0.0001})
    assert line.endswith("learning rate 0.0001, 0.1 of the usual 0.001 (--lr, --schedule.warmup)")
    assert said({}) == []


def test_a_learning_rate_that_is_given_stays(weights: Path) -> None:
    (line,) = said({"encoder.pretrained": str(weights), "optimizer.lr": 0.002, "schedule.warmup": 2})
    assert line.endswith("learning rate 0.002, reached after 2 epochs (--lr, --schedule.warmup)")


def test_how_much_learns_is_told() -> None:
    (line,) = said({"encoder.freeze_below": "stage2"})
    assert line.endswith("parameters learn (69.9%); the others stay as they are")


def test_a_run_from_weights_tells_its_gain_over_both_and_records_them(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(tmp_path / "run", encoder__pretrained=weights, epochs=1) == 0
    printed = capsys.readouterr().out
    assert "kNN of the weights that it starts from" in printed
    assert "points over the weights that it started from" in printed
    assert "over an untrained encoder" in printed
    assert "untrained/knn" in Run(tmp_path / "run").metrics[0]


@pytest.mark.parametrize("more", [{"method": "moco_v3"}, {"method": "byol"}, {"micro_batch": 4}])
def test_what_is_frozen_is_in_the_end_what_the_weights_were(
    weights: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    settings = {"encoder__pretrained": weights, "encoder__freeze_below": "stage2", "epochs": 1, **more}
    assert pretrain(tmp_path / "run", "--quiet", **settings) == 0
    before, after = load_file(weights), load_file(tmp_path / "run" / "encoder.safetensors")
    frozen = [name for name in before if name.startswith(("stem", "stage1")) and name in after]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert any(not torch.equal(before[name], after[name]) for name in before if name in after)


def test_every_encoder_of_a_run_of_several_views_starts_from_the_weights(weights: Path, tmp_path: Path) -> None:
    settings = {"method": "cmc", "views": "rgb,thermal", "encoder__pretrained": weights, "head__dim_out": 8}
    data = sensors(tmp_path / "data", 16)
    assert pretrain(tmp_path / "run", "--quiet", data=data, lr=1e-9, epochs=1, **settings) == 0
    start = load_file(weights)
    for view in ("rgb", "thermal"):
        end = load_file(tmp_path / "run" / f"encoder-{view}.safetensors")
        assert torch.allclose(end["stage1.0.conv1.weight"], start["stage1.0.conv1.weight"], atol=1e-6)


def test_lora_is_saved_with_the_run_goes_on_to_the_same_weights_and_is_merged_in_the_end(tmp_path: Path) -> None:
    settings = {
        "encoder": "timm/vit_tiny_patch16_224", "encoder__options": VIT, "encoder__lora": 2, "method": "moco_v3",
        "optimizer__layer_decay": 0.5, "encoder__freeze_below": "blocks.1", "checkpoint_steps": 5,
    }  # fmt: skip
    out, file = tmp_path / "run", tmp_path / "run" / "encoder.safetensors"
    assert pretrain(out, "--quiet", **settings) == 0
    end = load_file(file)
    assert not [name for name in end if "parametrizations" in name]
    file.unlink()
    picture = torch.zeros(3, 32, 32).byte()
    of_checkpoint = manyview.load(out)
    assert of_checkpoint.preprocess is not None
    assert of_checkpoint.network.state_dict().keys() == end.keys()
    sorted((out / "checkpoints").glob("*.pt"))[-1].unlink()  # as if it had been killed after step 10
    before = of_checkpoint(of_checkpoint.preprocess(picture))
    assert pretrain(out, "--quiet", **settings) == 0
    again = load_file(file)
    assert all(torch.equal(end[name], again[name]) for name in end)
    assert torch.allclose(manyview.load(out)(of_checkpoint.preprocess(picture)), before, atol=1e-6)
