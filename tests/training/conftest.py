"""An undisturbed run, for tests that compare with one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import manyview
from manyview.methods import METHODS
from manyview.training.run import Run
from tests.methods.toys.two_banks import two_banks
from tests.tiny import pretrain
from tests.training.whole_runs import TWO_VIEWS, LabelledPairs


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="package")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert pretrain(out, health_every=2) == 0
    return out


@pytest.fixture(scope="package")
def _two_views(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "two_banks", two_banks)
        return manyview.pretrain(LabelledPairs(), out=tmp_path_factory.mktemp("runs") / "two views", **TWO_VIEWS)


@pytest.fixture
def two_views(_two_views: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with an encoder a view, on labelled images of which some lack a view."""
    monkeypatch.setitem(METHODS, "two_banks", two_banks)
    return _two_views
