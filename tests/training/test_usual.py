"""Settings that follow from data and machine, and the line that tells them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from manyview.config.config import Config
from manyview.config.resolve import resolve
from manyview.encoders import create
from manyview.training.settle import with_chosen, with_size
from manyview.training.usual import RESNET18, RESNET50, VIT, Facts, computes_bf16, explained, slow_in_bf16, usual

PHOTOS = Facts(images=5000, side=480, device="cpu")


def open_config(**given: Any) -> Config:
    return resolve({}, {"data.name": "scenes", **{key.replace("__", "."): value for key, value in given.items()}})


def test_small_pictures_on_a_cpu() -> None:
    found = usual(open_config(), Facts(images=20_000, side=32, device="cpu", bf16=True))
    assert found == {
        "encoder.name": "patchnet", "augmentation.size": 32, "batch_size": 64, "precision": "bf16",
        "schedule.warmup": 5.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("images", "side", "encoder"), [(5000, 32, RESNET18), (5000, 480, RESNET50), (1_000_000, 480, VIT)]
)
def test_a_gpu_has_larger_networks_and_batches(images: int, side: int, encoder: str) -> None:
    found = usual(open_config(), Facts(images, side, "cuda"))
    assert (found["encoder.name"], found["batch_size"]) == (encoder, 256)


@pytest.mark.parametrize(("images", "batch"), [(3, 8), (50, 16), (150, 32), (192, 64), (10**6, 64)])
def test_few_images_make_small_batches(images: int, batch: int) -> None:
    assert usual(open_config(), replace(PHOTOS, images=images))["batch_size"] == batch


def test_what_is_given_stays() -> None:
    given = open_config(encoder="timm/resnet10t", batch_size=20, precision="fp32", augmentation__size=96)
    assert usual(given, replace(PHOTOS, bf16=True)) == {"schedule.warmup": 5.0}
    assert usual(resolve({"data.name": "scenes"}, {}), PHOTOS) == {}  # a recipe leaves nothing open


def test_where_the_time_counts_one_large_crop_has_two_small_ones_beside_it() -> None:
    assert usual(open_config(minutes=5), PHOTOS)["method.small"] == 2
    assert "method.small" not in usual(open_config(minutes=5, method__copies=2), PHOTOS)
    assert "method.small" not in usual(open_config(minutes=5, method="jcl"), PHOTOS)


def test_one_line_says_what_was_chosen_and_why() -> None:
    config = open_config()
    config = with_size(with_chosen(config, usual(config, PHOTOS)), 1, 64)
    (line,) = explained(config, PHOTOS)
    assert line == (
        "chosen: encoder patchnet, manyview's own small network (export to timm or a hub needs an --encoder timm/...), "
        "for a CPU; views of 64 px from pictures of 480 px; augmentation custom, which does "
        "not blur views of 64 px; fp32, no fast bf16 here; batch 64 for 5,000 images"
    )
    given = open_config(
        encoder="patchnet", augmentation="custom", augmentation__size=64, precision="fp32", batch_size=8
    )
    assert explained(given, PHOTOS) == []
    (line,) = explained(open_config(minutes=5), PHOTOS)
    assert "px from pictures of 480 px in 5 min;" in line
    assert line.endswith("epochs, which fit into 5 min")


def test_less_than_an_epoch_is_told_with_its_steps() -> None:
    few = replace(open_config(minutes=5), epochs=10 / 78)
    (line,) = explained(few, PHOTOS)  # 78 batches of 64 of 5,000 images
    assert line.endswith("0.13 of an epoch (10 steps), which fits into 5 min")


def test_convolutions_in_groups_are_slow_in_bf16() -> None:
    assert slow_in_bf16(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4)))
    assert not slow_in_bf16(create("patchnet", size=32, widths=(4,), blocks=(1,)))


def test_bf16_is_asked_of_the_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: False, raising=False)
    assert not computes_bf16("cpu")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True, raising=False)
    assert computes_bf16("cpu")
