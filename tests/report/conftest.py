"""A run on images whose names are an attack on the page, and a real browser, where there is one."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from manyview.report import write
from manyview.report.run_embeddings import EmbeddedRuns, embed_runs
from manyview.report.run_record import read_records
from manyview.training.run import Run
from tests.patience import PATIENCE
from tests.tiny import pictures, pretrain

EVIL = "<img src=x onerror=alert(1)>"
QUOTED = "\"'><b>&amp;"
NAMES = (EVIL, QUOTED)  # of the classes
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
MISSING = "NO CHROMIUM: the report was NOT opened in a browser; apt-get install chromium, pip install playwright"


@pytest.fixture(scope="package")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in train/ and test/, two classes, with hostile names everywhere."""
    folder = tmp_path_factory.mktemp("evil")
    for split, count in (("train", 32), ("test", 40)):
        pictures(folder / split, count, classes=2)
        for number, name in enumerate(NAMES):
            (folder / split / f"class{number}").rename(folder / split / name)
            for file in (folder / split / name).iterdir():
                file.rename(file.with_name(f"<script>alert({file.stem})<&'.png"))
    return folder


@pytest.fixture(scope="package")
def run(evil: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of a second, with a snapshot."""
    folder = tmp_path_factory.mktemp("runs") / "<b>run"
    assert pretrain(folder, "--quiet", data=evil, snapshots="1", health_every=1) == 0
    return Run(folder)


@pytest.fixture(scope="package")
def other(evil: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Another method on the same images."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    assert pretrain(folder, "--quiet", data=evil, method="simclr", health_every=1) == 0
    return Run(folder)


@pytest.fixture(scope="package")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos and 16-bit depth in train/ and test/, two classes; of some samples depth is missing, one is broken."""
    folder, draw = tmp_path_factory.mktemp("pairs"), np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 20)):
        for number in range(count):
            name = f"{NAMES[number % 2].replace('/', '')}/<i>{number}.png"
            photo, depth = (folder / split / modality / name for modality in ("rgb", "depth"))
            for file in (photo, depth):
                file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photo)
            if number % 5 != 4:
                Image.fromarray(draw.integers(500, 9000, (32, 32)).astype(np.uint16)).save(depth)
        (folder / split / "rgb" / NAMES[0] / "<i>0.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="package")
def many(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of a second with three views of two modalities."""
    folder = tmp_path_factory.mktemp("runs") / "many"
    assert pretrain(folder, "--quiet", data=pairs, method="cmc", views="rgb,ab,depth", health_every=1) == 0
    return Run(folder)


@pytest.fixture(scope="package")
def many_embedded(many: Run) -> EmbeddedRuns:
    return embed_runs(read_records([many]), 30, 60.0, None)


@pytest.fixture(scope="package")
def embedded(run: Run) -> EmbeddedRuns:
    """The run's embeddings of 30 images; what is computed once stays for all tests."""
    return embed_runs(read_records([run]), 30, 60.0, None)


@pytest.fixture(scope="package")
def both_embedded(run: Run, other: Run) -> EmbeddedRuns:
    return embed_runs(read_records([run, other]), 30, 60.0, None)


@pytest.fixture(scope="package")
def report(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([run], tmp_path_factory.mktemp("page") / "report.html", seconds=60)


@pytest.fixture(scope="package")
def both(run: Run, other: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write([run, other], tmp_path_factory.mktemp("page") / "report.html", seconds=60)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Debian's Chromium. Where there is none the tests of it are left out, which the summary says."""
    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        if os.environ.get("MANYVIEW_NEEDS_CHROMIUM"):
            pytest.fail(MISSING)
        warnings.warn(MISSING, stacklevel=1)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"], timeout=1000 * PATIENCE)
        yield chromium
        chromium.close()


def thumbnails(uri: str) -> Image.Image:
    """The picture in a data URI."""
    import base64
    import io

    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
