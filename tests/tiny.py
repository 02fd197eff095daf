"""Runs of a second, for tests that need a real one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

from manyview.cli import main as cli

ENCODER = "{widths: [8, 16], blocks: [1, 1]}"
SETTINGS = {
    "epochs": "2", "batch-size": "8", "encoder.options": ENCODER, "lr": "0.02",
    "knn-bank": "32", "knn-queries": "32", "device": "cpu", "precision": "fp32", "report": "false",
}  # fmt: skip
STEPS = 12


_KEPT: list[TemporaryDirectory[str]] = []  # gone when the tests are


@lru_cache
def noise() -> Path:
    """A folder of two classes, 49 pictures to learn from and 5 to be kept aside."""
    _KEPT.append(TemporaryDirectory())
    return pictures(Path(_KEPT[0].name), 54, classes=2)


def flags(**settings: object) -> list[str]:
    """`--key value ...`; in names, __ stands for a dot."""
    settings.setdefault("data", noise())
    given = {name.replace("__", ".").replace("_", "-"): str(value) for name, value in settings.items()}
    return [word for key, value in {**SETTINGS, **given}.items() for word in (f"--{key}", value)]


def pretrain(out: Path, *more: str, **settings: object) -> int:
    """The exit code of `manyview pretrain` in this process."""
    return cli.main(["pretrain", *flags(out=out, **settings), *more])


def sensors(folder: Path, count: int = 16, *, splits: Sequence[str] = ("train", "test"), classes: int = 0) -> Path:
    """Paired folders of rgb, thermal (one channel of 8 bits) and depth (16 bits), which show the same blocks."""
    draw = np.random.default_rng(0)
    for split in splits:
        for number in range(count):
            blocks = np.kron(draw.random((4, 4)), np.ones((8, 8)))
            colours = np.stack([255 * blocks, 255 * (1 - blocks), 128 + 100 * blocks], 2).astype(np.uint8)
            made: dict[str, np.ndarray[Any, Any]] = {
                "rgb": colours,
                "thermal": colours[..., 0],
                "depth": (500 + 4000 * blocks).astype(np.uint16),
            }
            for modality, array in made.items():
                home = folder / split / modality / (f"class{number % classes}" if classes else "")
                home.mkdir(parents=True, exist_ok=True)
                Image.fromarray(array).save(home / f"{number}.png")
    return folder


def many_views(out: Path, data: Path, views: str = "rgb,thermal,depth", **settings: object) -> Path:
    """A run of `cmc` with an encoder a view, of a few steps."""
    assert pretrain(out, "--quiet", data=data, method="cmc", views=views, head__dim_out=8, **settings) == 0
    return out


def pictures(
    folder: Path, count: int, *, classes: int = 0, mode: str = "RGB", sides: Sequence[int] = (32,), flat: bool = False
) -> Path:
    """A folder of noise, or of single colours, in folders by class if there are any."""
    draw = np.random.default_rng(0)
    for number in range(count):
        home = folder / f"class{number % classes}" if classes else folder
        home.mkdir(parents=True, exist_ok=True)
        side, channels = sides[number % len(sides)], len(mode)
        colour = draw.integers(0, 256, (1, 1, channels), dtype=np.uint8)
        noise = draw.integers(0, 256, (side, side, channels), dtype=np.uint8)
        array = np.broadcast_to(colour, noise.shape) if flat else noise
        Image.fromarray(array.squeeze(-1) if channels == 1 else np.ascontiguousarray(array)).save(
            home / f"{number}.png"
        )
    return folder
