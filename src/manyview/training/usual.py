"""Settings that follow from the data and the machine where they are left open, and the line that explains them.

Some of it was compared on held-out training images, as docs/training.md tells; what is for GPUs is reasoned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from manyview.config.config import Config
from manyview.config.keys import Flat
from manyview.config.sections import ENCODER
from manyview.core.text import counted
from manyview.training.batches import LEAST_IMAGES, epoch_of
from manyview.views.augmentation_recipes import usual_size

BATCH = {"cpu": 64, "cuda": 256}
BATCHES = 3  # of an epoch, at least: of few images a batch is smaller
WARMUP, WARMUP_FROM_WEIGHTS = 0.05, 0.1  # of the run; from weights, a new head learns first
SMALL_CROPS: Flat = {"method.copies": 1, "method.small": 2, "augmentation.small_scale": (0.2, 1.0)}
"""Beside one large crop, where the time counts: two crops of half the size cost less than a second large one."""
OWN_NETWORK = "manyview's own small network (export to timm or a hub needs an --encoder timm/...),"
MANY_IMAGES = 100_000  # from which on a ViT is trained on a GPU
RESNET18, RESNET50, VIT = "torchvision/resnet18", "torchvision/resnet50", "timm/vit_small_patch16_224"


@dataclass(frozen=True)
class Facts:
    """The facts that settings are chosen by: the training images, their usual shorter side, and the machine."""

    images: int
    side: int
    device: str  # cpu or cuda
    bf16: bool = False  # whether the machine computes in it, and not by way of fp32


def usual(config: Config, facts: Facts) -> Flat:
    """Chooses values for the settings that are left open. Nothing is built and nothing is timed."""
    size = config.augmentation["size"] or usual_size(facts.side)
    warmup = WARMUP_FROM_WEIGHTS if config.encoder["pretrained"] else WARMUP
    chosen: Flat = {
        "encoder.name": config.encoder["name"] if config.encoder["pretrained"] else _encoder(size, facts),
        "augmentation.size": size,
        "batch_size": _batch(facts),
        "precision": "bf16" if facts.bf16 else "fp32",
        "schedule.warmup": round(warmup * config.epochs, 4),
    }
    if config.minutes is not None and facts.device == "cpu" and set(SMALL_CROPS) <= set(config.auto):
        chosen |= SMALL_CROPS
    return {key: value for key, value in chosen.items() if key in config.auto}


def _encoder(size: int, facts: Facts) -> str:
    """Chooses a small network on a CPU; on a GPU a ResNet, for very many photos a ViT, which gains more of them."""
    if facts.device == "cpu":
        return ENCODER
    if size < 96:
        return RESNET18
    return VIT if facts.images >= MANY_IMAGES else RESNET50


def _batch(facts: Facts) -> int:
    """Chooses a power of two such that few images make three batches, but not too small to contrast."""
    most = min(BATCH.get(facts.device, BATCH["cpu"]), max(LEAST_IMAGES, facts.images // BATCHES))
    return 1 << (most.bit_length() - 1)


def computes_bf16(device: str) -> bool:
    """Tells whether the hardware multiplies matrices in bf16: AVX512-BF16 or AMX, or a GPU from Ampere on."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    checks: list[Any] = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile")]
    return any(bool(check()) for check in checks if check is not None)


def slow_in_bf16(encoder: nn.Module) -> bool:
    """Tells whether a CPU gains nothing by bf16: grouped convolutions (MobileNets) take twice the time in it."""
    return any(isinstance(each, nn.Conv2d) and each.groups > 1 for each in encoder.modules())


def explained(config: Config, facts: Facts) -> list[str]:
    """Explains in one line what was chosen and why; empty where nothing was left open."""
    size, name = config.augmentation["size"], config.augmentation["name"]
    machine = "a CPU" if facts.device == "cpu" else "a GPU"
    blur = f"{name}, {'which does not blur' if name == 'custom' else 'which blurs'}"
    own = f", {OWN_NETWORK}" if config.encoder["name"] == ENCODER else ""
    budget = "" if config.minutes is None else f"{config.minutes:g} min"
    said = {
        "encoder.name": f"encoder {config.encoder['name']}{own} for {machine}",
        "augmentation.size": f"views of {size} px from pictures of {facts.side} px{budget and f' in {budget}'}",
        "augmentation.name": f"augmentation {blur} views of {size} px" if name in ("custom", "moco-v2") else "",
        "method.small": "one large crop and two small ones, which cost less than two large" if _small(config) else "",
        "precision": f"{config.precision}, {'which is faster here' if facts.bf16 else 'no fast bf16 here'}",
        "batch_size": f"batch {config.batch_size} for {facts.images:,} images",
        "epochs": f"{_epochs(config, facts)}, which fit{'s' * (config.epochs < 1)} into {budget}",
    }
    chosen = [text for key, text in said.items() if key in config.auto and text]
    return [f"chosen: {'; '.join(chosen)}"] if chosen else []


def _epochs(config: Config, facts: Facts) -> str:
    """Writes how long a run is: in epochs, or as a part of one with its steps."""
    if config.epochs >= 1:
        return f"{config.epochs:.4g} epochs"
    steps = max(1, round(config.epochs * epoch_of(config, facts.images).batches))
    return f"{config.epochs:.2g} of an epoch ({counted(steps, 'step')})"


def _small(config: Config) -> bool:
    return bool(config.method.get("small") == SMALL_CROPS["method.small"])
