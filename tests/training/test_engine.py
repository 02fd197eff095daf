"""The run on this machine: one process or several, precision, fast convolutions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric.strategies.ddp import DDPStrategy

from manyview.config.resolve import resolve
from manyview.encoders import layers
from manyview.methods import BatchOutputs
from manyview.training import build, engine, step
from manyview.training.engine import Ddp, Trainer, groups_are_processes
from manyview.training.step import MakeViews
from tests.tiny import pretrain


def test_processes_that_torchrun_has_not_started_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert pretrain(tmp_path) == 2
    assert "WORLD_SIZE: is 2, and torchrun has not started this process" in capsys.readouterr().err


def test_double_precision_is_double_up_to_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[torch.dtype] = []
    whole_batch = step.whole_batch

    def watched(*given: Any, **more: Any) -> Any:
        stepped = whole_batch(*given, **more)
        (term,) = stepped.objective.terms.values()
        triple = term.triples[0]
        found.extend([stepped.loss.dtype, triple.query.dtype, triple.positives.dtype])
        return stepped

    monkeypatch.setattr(engine, "whole_batch", watched)
    assert pretrain(tmp_path, precision="fp64", max_steps=1) == 0
    assert set(found) == {torch.float64}


def test_in_training_convolutions_on_small_maps_are_dense_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps: list[torch.Size] = []
    dense = layers._dense

    def watched(x: torch.Tensor, *given: Any) -> torch.Tensor:
        maps.append(x.shape[2:])
        return dense(x, *given)

    monkeypatch.setattr(layers, "_dense", watched)
    assert pretrain(tmp_path, augmentation__size=8, max_steps=1) == 0
    assert set(maps) == {(2, 2)}  # of the second stage's second convolution


def test_nothing_of_a_cluster_is_taken_for_a_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert pretrain(tmp_path, max_steps=1) == 0


def test_a_trainer_steps_and_its_state_goes_on_in_another() -> None:
    one, other = trainer(), trainer()
    for number in range(2):
        one.gradient(*given(number))
        assert one.step(0.1, 0, measure=False) is None
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for each in (one, other):
        each.gradient(*given(2))
        norm = each.step(0.1, 0, measure=True)
        assert norm is not None
        assert norm > 0
    for key, value in one.method.state_dict().items():
        assert torch.equal(other.method.state_dict()[key], value)


def trainer() -> Trainer:
    tiny = {"encoder.options": {"widths": [8, 16], "blocks": [1, 1]}, "device": "cpu", "augmentation.size": 32}
    config = resolve({"data.name": "photos", "method.name": "simclr", "batch_size": 4, **tiny}, {})
    return Trainer(engine.start_fabric(config), config, build.method(config, {"image": 3}, 40))


def given(number: int) -> tuple[MakeViews, BatchOutputs]:
    draw = torch.Generator().manual_seed(number)
    copies = [torch.rand(4, 3, 32, 32, generator=draw) for _ in range(2)]
    rows = torch.arange(4)
    return lambda part: {"image": [each[part] for each in copies]}, BatchOutputs({}, rows, rows, step=number)


def test_only_where_a_method_leaves_parameters_out_they_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DDPStrategy, "setup_module", lambda self, module: self._ddp_kwargs)
    config = resolve({"data.name": "photos", "augmentation.size": 32, "method.name": "simclr"}, {})
    method = build.method(config, {"image": 3}, 40)
    assert Ddp().setup_module(method) == {"find_unused_parameters": False}  # type: ignore[comparison-overlap]
    method.slots = tuple(slot._replace(name="features") for slot in method.slots)  # the head has no part in these
    assert Ddp().setup_module(method) == {"find_unused_parameters": True}  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("given", "on_cpus", "on_gpus"),
    [
        ({"method.name": "simclr"}, True, False),  # on GPUs batch norm is over all processes
        ({"method.name": "moco_v2"}, True, True),  # keys are shuffled among processes
        ({"method.name": "moco_v2", "method.bn_splits": 4}, False, False),
        ({"method.name": "simclr", "encoder.name": "timm/test_vit", "head.name": "mlp"}, False, False),
    ],
)
def test_it_is_known_whether_batch_norm_can_tell_the_number_of_processes(
    given: dict[str, Any], on_cpus: bool, on_gpus: bool
) -> None:
    config = resolve({"data.name": "photos", "augmentation.size": 32, "batch_size": 16, **given}, {})
    towers = build.small_method(config, ["image"]).towers
    if "encoder.name" in given:
        towers = build.method(config, {"image": 3}, 40).towers
    for device, expected in (("cpu", on_cpus), ("cuda", on_gpus)):
        assert groups_are_processes(towers, torch.device(device)) == expected


def test_the_predictors_learning_rate_stays_what_it_is_where_that_is_asked_for(tmp_path: Path) -> None:
    kept = {"method": "simsiam", "schedule__keep_predictor": "true", "head__dim_out": 8, "head__hidden": 8}
    assert pretrain(tmp_path, **kept, predictor__dim_out=8, predictor__hidden=8, epochs=1, lr=0.5) == 0
    saved = torch.load(max((tmp_path / "checkpoints").glob("step-*.pt")), weights_only=True)
    rates = {group["lr"] for group in saved["optimizer"]["param_groups"] if "kept_lr" in group}
    others = {group["lr"] for group in saved["optimizer"]["param_groups"] if "kept_lr" not in group}
    assert rates == {0.5}
    assert max(others) < 0.1


def test_weight_decay_grows_from_step_to_step_where_that_is_asked_for(tmp_path: Path) -> None:
    decays = {"weight_decay": 0.04, "weight_decay_end": 0.4}
    given = {f"optimizer__{name}": value for name, value in decays.items()}
    assert pretrain(tmp_path, **given, epochs=1) == 0
    saved = torch.load(max((tmp_path / "checkpoints").glob("step-*.pt")), weights_only=True)
    first, *others = (group["weight_decay"] for group in saved["optimizer"]["param_groups"])
    assert 0.35 < first < 0.4  # of the last of six steps
    assert others == [0.0]


def test_a_method_without_a_predictor_has_no_such_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path, schedule__keep_predictor="true", method="simclr") == 2
    assert "keep_predictor" in capsys.readouterr().err
