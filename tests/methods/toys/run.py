"""Trains toys. `python -m tests.methods.toys.run FOLDER TOY ...` trains each, in FOLDER/TOY, until it is killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.methods import METHODS, Method
from manyview.training.launch import pretrain
from tests.methods.toys.no_negatives import no_negatives
from tests.methods.toys.two_banks import two_banks

TOYS = {each.__name__: each for each in (two_banks, no_negatives)}
SMALL_CROPS = ("moco_v3", "cacr_moco_v3_code")
TRAINED = (*TOYS, "prediction", "cmc_patch", *SMALL_CROPS)  # and methods of papers, of the kinds that no toy is
COUNT, SIDE, KILLED_AFTER = 36, 32, 3
SETTINGS: dict[str, Any] = {
    "encoder": "timm/test_vit",  # layer norm: two processes and micro-batches are one to the last digits
    "augmentation": {"name": "custom", "size": 32},
    "batch_size": 8, "epochs": 2, "max_steps": 6, "health_every": 1, "checkpoint_steps": 2, "evaluators": (),
    "optimizer": {"name": "sgd", "lr": 0.05}, "workers": 0, "loggers": (), "quiet": True, "report": False,
    "device": "cpu", "precision": "fp64", "seed": 3,
}  # fmt: skip
MLP = {"name": "mlp", "dim_out": 8}
OPTIONS: dict[str, dict[str, Any]] = {
    "prediction": {"decoder": {"side": 6, "width": 4}, "distance": {"name": "bins", "classes": 4}},
    "cmc_patch": {"head": {"dim_out": 8}},
    **{
        name: {"method": {"name": name, "small": 2}, "head": MLP, "predictor": MLP}  # batch norm would see its own part
        for name in SMALL_CROPS
    },
    # each way in which CMC can have its negatives
    "cmc": {},
    "cmc_bank": {"method": "cmc", "memory": {"name": "bank", "m": 6}},
    "cmc_bank_nce": {"method": "cmc", "memory": {"name": "bank", "m": 6}, "loss": "nce"},
    "cmc_bank_nce_follows": {
        "method": "cmc", "memory": {"name": "bank", "m": 50, "stored": False, "decay": 0.9}, "loss": "nce"
    },
    "cmc_moco": {"memory": {"size": 24}},
}  # fmt: skip
CMC = ("cmc", "cmc_bank", "cmc_bank_nce", "cmc_bank_nce_follows", "cmc_moco")


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
    with patch.dict(METHODS, TOYS):
        given = {"method": toy, **SETTINGS, **OPTIONS.get(toy, {}), **settings}
        pretrain(Pairs(whole=toy in ("no_negatives", *SMALL_CROPS)), out=folder, **given)


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
