"""Trains toys. `python -m tests.methods.toys.run FOLDER TOY ...` trains each, in FOLDER/TOY, until it is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.methods import METHODS, Method
from manyview.training.launch import pretrain
from tests.methods.toys.against_maps import against_maps
from tests.methods.toys.no_negatives import no_negatives
from tests.methods.toys.prediction import prediction
from tests.methods.toys.two_banks import two_banks

TOYS = {each.__name__: each for each in (two_banks, prediction, no_negatives, against_maps)}
COUNT, SIDE, KILLED_AFTER = 36, 32, 3
SETTINGS: dict[str, Any] = {
    "encoder": "timm/test_vit",  # layer norm: two processes and micro-batches are one to the last digits
    "augmentation": {"name": "custom", "size": 32},
    "batch_size": 8, "epochs": 2, "max_steps": 6, "health_every": 1, "checkpoint_steps": 2, "evaluators": (),
    "optimizer": {"name": "sgd", "lr": 0.05}, "workers": 0, "loggers": (), "quiet": True, "report": False,
    "device": "cpu", "precision": "fp64", "seed": 3,
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    # the vision transformer's last block, as wide as the embeddings
    "against_maps": {"method": {"name": "against_maps", "layer": "blocks.0"}, "head": {"dim_out": 64}},
    # and what is no toy: each way in which CMC can have its negatives
    "cmc": {},
    "cmc_bank": {"method": "cmc", "memory": {"name": "bank", "m": 6}},
    "cmc_bank_nce": {"method": "cmc", "memory": {"name": "bank", "m": 6}, "loss": "nce"},
    "cmc_bank_nce_follows": {
        "method": "cmc", "memory": {"name": "bank", "m": 50, "stored": False, "decay": 0.9}, "loss": "nce"
    },
    "cmc_moco": {"memory": {"size": 24}},
}  # fmt: skip
CMC = [name for name in OPTIONS if name.startswith("cmc")]


class Pairs:
    """Pictures with a depth, made of noise; every fifth lacks its depth, and every seventh its picture."""

    modalities: tuple[str, ...] = ("image", "depth")
    classes: tuple[str, ...] = ()
    labels: Tensor | None = None
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


def train(toy: str, folder: str, **settings: Any) -> None:
    given = {"method": toy, **SETTINGS, **OPTIONS.get(toy, {}), **settings}
    lacking = toy == "two_banks" or toy in CMC
    METHODS.update(TOYS)
    try:
        pretrain(Pairs(whole=not lacking), out=folder, **given)
    finally:
        for name in TOYS:
            del METHODS[name]


def train_in_two(rank: int, folder: str, toys: Sequence[str]) -> dict[str, Any]:
    """Trains each toy in one of two processes, in FOLDER/TOY."""
    for toy in toys:
        train(toy, f"{folder}/{toy}")
    return {}


def main(folder: str, *toys: str) -> None:
    """Trains each toy in a process of its own, which kills itself after some steps."""
    import manyview.training.train  # noqa: F401  once for all of them

    torch.set_num_threads(1)
    for toy in toys:
        child = os.fork()
        if not child:
            _kill_after(KILLED_AFTER)
            train(toy, f"{folder}/{toy}")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit(f"{toy} was not killed, and ended with {status}")


def _kill_after(steps: int) -> None:
    update, done = Method.update, []

    def counted(self: Method, *given: Any) -> None:
        update(self, *given)
        done.append(0)
        if len(done) == steps:
            os.kill(os.getpid(), signal.SIGKILL)

    Method.update = counted  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    main(*sys.argv[1:])
