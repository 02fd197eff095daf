"""Tasks of a second: pictures that are kept in memory, and encoders that are small."""

from __future__ import annotations

from functools import cache

import torch
from torch.utils.data import TensorDataset

from manyview.data import Scenes, TorchDataset
from manyview.embeddings.open_model import open_model
from manyview.encoders import Encoder, create
from manyview.evaluate.task import Task


@cache
def scenes(count: int, split: str, size: int = 16) -> TorchDataset:
    """Of eight shapes or so."""
    made = Scenes(count, size=size, split=split)
    images = TensorDataset(made.batch(torch.arange(count))["image"], made.labels)
    images.classes = made.classes  # type: ignore[attr-defined]
    return TorchDataset(images, ids=made.ids)


@cache
def shades(count: int, classes: int, seed: int) -> TorchDataset:
    """Noise, whose brightness tells the class: anything learns it."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    bright = (labels * 200 // (classes - 1))[:, None, None, None]
    images = (bright + torch.randint(0, 20, (count, 3, 16, 16), generator=draw)).to(torch.uint8)
    return TorchDataset(TensorDataset(images, labels), ids=torch.arange(count) + 10_000 * seed)


@cache
def depths(count: int, split: str) -> TorchDataset:
    """Scenes as pictures and as depths."""
    made = Scenes(count, size=16, split=split, modalities=("rgb", "depth"))
    views = made.batch(torch.arange(count))
    samples = [{name: view[row] for name, view in views.items()} for row in range(count)]
    return TorchDataset(samples, ids=made.ids, labels=made.labels)


def encoder(seed: int = 0, size: int = 16) -> Encoder:
    """Small, with statistics that are not those of its start."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        made = create("patchnet", size=size, widths=(8, 16), blocks=(1, 1))
        made(torch.randn(64, 3, size, size) * 2 + 1)
    return made


def task(network: Encoder | None = None, *, seed: int = 0) -> Task:
    return Task(open_model(network or encoder()), scenes(120, "train"), scenes(60, "test"), "scenes", seed)


def easy(classes: int = 3, *, seed: int = 0, count: int = 120) -> Task:
    return Task(open_model(encoder()), shades(count, classes, 1), shades(60, classes, 2), "shades", seed)


def pair() -> Task:
    """An encoder of pictures and one of depths."""
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        deep = create("patchnet", channels=1, size=16, widths=(8, 12), blocks=(1, 1))
    return Task(open_model({"rgb": encoder(), "depth": deep}), depths(40, "train"), depths(20, "test"), "scenes")
