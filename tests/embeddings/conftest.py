"""A small encoder, on one core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from manyview import encoders
from manyview.encoders import Encoder


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
