"""What `check` says of each modality."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from manyview.data.check import as_json, as_text, open_splits
from manyview.data.scenes.dataset import Scenes
from manyview.data.survey import Survey, survey


@pytest.fixture
def street(tmp_path: Path) -> Path:
    """Four samples: depth of 16 bits, half of it 0; five bands; labels; one of bands missing, a depth broken."""
    for number in range(4):
        depth = np.full((4, 6), 1000 + number, np.uint16)
        depth[:2] = 0
        bands = np.full((5, 4, 6), number, np.float32)
        bands[1, 0, 0] = np.nan
        rgb = np.full((4, 6, 3), 7, np.uint8)
        for name in ("rgb", "depth", "labels"):
            (tmp_path / "train" / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(rgb if name == "rgb" else depth).save(tmp_path / "train" / name / f"{number}.png")
        (tmp_path / "train" / "bands").mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / "train" / "bands" / f"{number}.tif", bands, photometric="minisblack")
    (tmp_path / "train" / "bands" / "1.tif").unlink()
    (tmp_path / "train" / "depth" / "2.png").write_bytes(b"broken")
    return tmp_path


def surveyed(path: Path, **options: object) -> tuple[Survey, str]:
    splits, missing = open_splits(str(path))
    result = survey(splits, threads=2, **options)  # type: ignore[arg-type]
    return result, as_text("street", result, missing)


def test_each_modality_is_described(street: Path) -> None:
    result, text = surveyed(street, nodata={"depth": 0.0})
    assert list(result.by_modality) == ["rgb", "bands", "depth"]
    depth = result.by_modality["depth"]
    assert (depth.files, depth.unreadable, depth.channels, depth.types) == (4, 1, 1, {"16-bit grey": 3})
    assert (depth.low, depth.high, depth.no_data, depth.zeros) == (1000, 1003, 0.5, 0)
    assert depth.mean == pytest.approx([(1000 + 1001 + 1003) / 3])
    bands = result.by_modality["bands"]
    assert (bands.files, bands.missing, bands.missing_names) == (3, 1, ["train/1"])
    assert (bands.channels, bands.types) == (5, {"5 x float32": 3})
    assert bands.no_data == pytest.approx(1 / 120)
    assert bands.mean == pytest.approx([5 / 3] * 5)
    assert "bands is missing in 1 of 4 samples: train/1" in text
    assert "labels: label maps by name; --modalities rgb,bands,depth,labels takes them" in text


def test_many_zeros_of_a_sensor_are_asked_about(street: Path) -> None:
    _, text = surveyed(street)
    assert "50.0% of the pixels of depth are 0: where that means nothing was seen, give --nodata 0" in text
    assert "are 0" not in surveyed(street, nodata=0.0)[1]


def test_headers_alone_tell_type_and_gaps(street: Path) -> None:
    result, text = surveyed(street, fast=True)
    assert result.by_modality["bands"].types == {"5 x float32": 3}
    assert (result.by_modality["bands"].channels, result.by_modality["bands"].low) == (None, None)
    assert "is missing in 1 of 4" in text


def test_programs_get_the_same(street: Path) -> None:
    result, _ = surveyed(street)
    by_modality = as_json("street", result, {})["by_modality"]
    assert isinstance(by_modality, dict)
    assert by_modality["depth"]["types"] == {"16-bit grey": 3}
    assert by_modality["rgb"] == vars(result.by_modality["rgb"])


def test_generated_modalities_are_described_too_and_a_single_one_is_not() -> None:
    facts = survey({"train": Scenes(3, size=16, modalities=("rgb", "depth"))}).by_modality
    assert {name: (each.files, each.channels) for name, each in facts.items()} == {"rgb": (3, 3), "depth": (3, 1)}
    assert survey({"train": Scenes(3, size=16)}).by_modality == {}
