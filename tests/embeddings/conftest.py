"""A small encoder and a small run, on one core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from manyview import encoders
from manyview.encoders import Encoder
from manyview.training.run import Run
from tests.tiny import pretrain


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    """Tiny work on several cores mostly waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    torch.manual_seed(0)
    return encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1]).eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve steps an epoch, a queue, snapshots after the first and the second of three epochs."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    more = {
        "memory__size": 32,
        "method__keys": 2,
        "snapshots": "[1, 2]",
        "epochs": 3,
        "batch_size": 4,
        "evaluate_every": 0,
    }
    assert pretrain(folder, "--quiet", method="jcl", **more) == 0
    return Run(folder)
