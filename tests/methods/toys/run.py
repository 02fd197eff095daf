"""Trains a toy: `python -m tests.methods.toys.run TOY FOLDER [SETTINGS as JSON]`, also under torchrun.

With the setting `kill_after` the process kills itself after so many steps.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import torch

from manyview.core.sample import Sample
from manyview.methods import METHODS, Method
from tests.methods.toys.against_maps import against_maps
from tests.methods.toys.no_negatives import no_negatives
from tests.methods.toys.prediction import prediction
from tests.methods.toys.two_banks import two_banks

TOYS = {each.__name__: each for each in (two_banks, prediction, no_negatives, against_maps)}
COUNT, SIDE = 36, 32
SETTINGS: dict[str, Any] = {
    "encoder": "timm/test_vit",  # layer norm: two processes and micro-batches are one to the last digits
    "augmentation": {"name": "custom", "size": 32},
    "batch_size": 8, "epochs": 2, "max_steps": 6, "health_every": 1, "checkpoint_steps": 2, "evaluators": (),
    "optimizer": {"name": "sgd", "lr": 0.05}, "workers": 0, "loggers": (), "quiet": True, "report": False,
    "device": "cpu", "precision": "fp64", "seed": 3,
}  # fmt: skip


class Pairs:
    """Pictures with a depth, made of noise; every fifth lacks its depth, and every seventh its picture."""

    modalities, classes, labels = ("image", "depth"), (), None
    ids = torch.arange(COUNT) * 3 + 1

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Sample:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(256, (3, SIDE, SIDE), generator=generator).byte()
        found = {"image": image, "depth": image.float().mean(0, keepdim=True) / 255}
        if not self.whole and index % 5 == 0:
            del found["depth"]
        elif not self.whole and index % 7 == 0:
            del found["image"]
        return Sample(int(self.ids[index]), index, found, {})

    def name(self, index: int) -> str:
        return f"pair {index}"


def main(toy: str, folder: str, given: str = "{}") -> None:
    from manyview.training.launch import pretrain

    settings = json.loads(given)
    METHODS[toy] = TOYS[toy]
    _kill_after(settings.pop("kill_after", None))
    pretrain(Pairs(whole=toy != "two_banks"), out=folder, **{"method": toy, **SETTINGS, **settings})


def _kill_after(steps: int | None) -> None:
    update, done = Method.update, []

    def counted(self: Method, *given: Any) -> None:
        update(self, *given)
        done.append(0)
        if steps is not None and len(done) == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    Method.update = counted  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main(*sys.argv[1:])
