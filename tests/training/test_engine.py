"""The run on this machine: one process or several, precision, fast convolutions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from manyview.encoders import dense_conv
from manyview.training import engine
from tests.tiny import pretrain


def test_processes_that_torchrun_has_not_started_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert pretrain(tmp_path) == 2
    assert "WORLD_SIZE: is 2, and torchrun has not started this process" in capsys.readouterr().err


def test_double_precision_is_double_up_to_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[torch.dtype] = []
    whole_batch = engine.whole_batch

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
    dense = dense_conv._dense

    def watched(x: torch.Tensor, *given: Any) -> torch.Tensor:
        maps.append(x.shape[2:])
        return dense(x, *given)

    monkeypatch.setattr(dense_conv, "_dense", watched)
    assert pretrain(tmp_path, augmentation__size=8, max_steps=1) == 0
    assert set(maps) == {(2, 2)}  # of the second stage's second convolution


def test_nothing_of_a_cluster_is_taken_for_a_wish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_NAME": "train", "SLURM_JOB_ID": "1"}.items():
        monkeypatch.setenv(name, value)
    assert pretrain(tmp_path, max_steps=1) == 0
