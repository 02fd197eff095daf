"""What a run's settings are once its data and its machine are known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from manyview.config.resolve import resolve
from manyview.training import run_data, settle
from tests.config.small import flags
from tests.data.test_paired import put
from tests.tiny import pictures

SCENES = {"data.name": "scenes"}


def test_a_run_keeps_which_views_it_sees(tmp_path: Path) -> None:
    put(tmp_path / "a" / "1.png")
    put(tmp_path / "a" / "2.png")
    config = flags(f"--data {tmp_path / 'a'} --method cmc")
    assert settle.settled(config, run_data.open_data(config)).views == ("L", "ab")
    config = flags(f"--data {tmp_path / 'a'} --method simclr")
    assert settle.settled(config, run_data.open_data(config)).views is None


def test_the_folder_of_a_run_has_a_name_in_utf_8_whatever_the_data_is_called(tmp_path: Path) -> None:
    folder = pictures(tmp_path / os.fsdecode(b"caf\xe9"), 4)
    config = flags("--method simclr", {"data.name": str(folder)})
    out = settle.settled(config, run_data.open_data(config)).out
    assert out is not None
    assert out.encode().startswith("runs/simclr-caf\ufffd-".encode())


@pytest.mark.parametrize(
    "encoder",
    [
        {"encoder.name": "timm/resnet10t", "encoder.crop": 96, "augmentation.size": 192},
        {"encoder.name": "torchvision/vit_h_14", "augmentation.size": 28},
    ],
)
def test_what_is_asked_of_an_encoder_is_asked_at_the_size_that_it_will_have(
    monkeypatch: pytest.MonkeyPatch, encoder: dict[str, object]
) -> None:
    monkeypatch.setattr(settle, "computes_bf16", lambda device: True)
    config = resolve({}, {"data.name": "scenes", "data.count": 8, "device": "cpu", **encoder})
    assert "precision" in config.auto
    assert settle.facts(config, run_data.open_data(config)).bf16
