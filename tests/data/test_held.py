"""Loaders of the same data set share what they hold, and nobody else does."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from manyview.data.loader import Loader
from manyview.views import Augmentation, ViewPipeline
from tests.data.random_pictures import Pictures

SMALL, OTHER = (ViewPipeline([Augmentation(size)] * 2) for size in (16, 12))


@pytest.fixture
def data(tmp_path: Path) -> Pictures:
    made = Pictures(20)
    made.log = tmp_path / "log"
    return made


def reads(data: Pictures) -> int:
    assert data.log is not None
    found = len(data.log.read_text().split()) if data.log.exists() else 0
    data.log.write_text("")
    return found


def test_a_second_loader_of_a_data_set_decodes_nothing_while_the_first_lives(data: Pictures) -> None:
    first = Loader(data, SMALL, 5)
    assert reads(data) >= len(data)
    second = Loader(data, OTHER, 4, shuffle=False)
    assert reads(data) == 0
    assert second.held == first.held == (20, 20 * 3 * 20 * 20)


def test_what_nobody_needs_any_more_is_given_back(data: Pictures) -> None:
    Loader(data, SMALL, 5)
    gc.collect()
    reads(data)
    Loader(data, SMALL, 5)
    assert reads(data) >= len(data)


def test_another_data_set_and_another_limit_have_memory_of_their_own(data: Pictures) -> None:
    first = Loader(data, SMALL, 5, workers=0)
    reads(data)
    assert Loader(data, SMALL, 5, memory=0, workers=0).held == (0, 0)
    equal = Pictures(20)
    views = [next(iter(Loader(each, SMALL, 5, workers=0).epoch(0))).views()["image"][0] for each in (data, equal)]
    assert torch.equal(*views)
    assert first.held[0] == 20
