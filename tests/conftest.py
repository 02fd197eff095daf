"""What holds for all tests, in each of the processes that share them (`make test` starts two)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: small tensors, and as many processes as cores; children inherit it
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell takes from what it starts in the background
settings.register_profile("fast", max_examples=24, deadline=None, derandomize=True)  # the same examples every time
settings.register_profile("thorough", max_examples=400, deadline=None)  # for `make test-all`
settings.load_profile("fast")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of its own for each process of the tests, so that none reads what another or a person has left."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYVIEW_CACHE", str(folder / "features"))
        patch.setenv("MANYVIEW_DATA", str(folder / "data"))
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
