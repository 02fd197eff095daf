"""Statistics of modalities: against a loop in float64, without pixels that hold no data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.core.errors import UserError
from manyview.data.paired import Paired
from manyview.data.scenes.dataset import Scenes
from manyview.data.selection import subset
from manyview.data.statistics import NoData, moments, no_data_of, statistics
from manyview.views import Modality


def looped(pictures: list[torch.Tensor], nodata: float | None) -> tuple[list[float], list[float], list[float]]:
    """Mean, std and count of each channel, pixel by pixel."""
    means, stds, counts = [], [], []
    for channel in range(len(pictures[0])):
        held = [
            float(x)
            for picture in pictures
            for x in picture[channel].flatten().tolist()
            if math.isfinite(x) and x != nodata
        ]
        mean = sum(held) / len(held)
        means.append(mean)
        stds.append(math.sqrt(sum((x - mean) ** 2 for x in held) / len(held)))
        counts.append(float(len(held)))
    return means, stds, counts


@pytest.mark.parametrize("nodata", [None, -9999.0])
def test_joined_moments_are_those_of_all_pixels(nodata: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    pictures = [torch.randn(2, 5, 4, generator=generator) * 3 + 30000 for _ in range(4)]
    pictures[0][0, :2], pictures[1][1, 0, 0], pictures[2][0, 0, 1] = -9999, torch.nan, torch.inf
    total = moments(pictures[0], nodata)
    for each in pictures[1:]:
        total = total + moments(each, nodata)
    mean, std, count = looped(pictures, nodata)
    assert total.mean.tolist() == pytest.approx(mean, rel=1e-12)
    assert total.std.tolist() == pytest.approx(std, rel=1e-9)
    assert total.count.tolist() == count
    assert total.no_data == pytest.approx((2 + (8 if nodata is not None else 0)) / (4 * 2 * 20))
    assert total.low[0] > -9999 or nodata is None
    assert total.high.isfinite().all()


@pytest.fixture
def street(tmp_path: Path) -> Path:
    """Five samples with 16-bit depth, 0 where nothing was seen, and 8-bit thermal; one lacks it, a depth is broken."""
    rng = np.random.default_rng(0)
    for number in range(5):
        depth = rng.integers(1000, 9000, (6, 8)).astype(np.uint16)
        depth[0] = 0
        files = {"rgb": rng.integers(0, 255, (6, 8, 3), np.uint8), "depth": depth, "thermal": depth.astype(np.uint8)}
        for name, values in files.items():
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(values).save(tmp_path / name / f"{number}.png")
    (tmp_path / "thermal" / "1.png").unlink()
    (tmp_path / "depth" / "2.png").write_bytes(b"broken")
    return tmp_path


def test_statistics_leave_out_no_data_and_what_cannot_be_read(street: Path) -> None:
    data = Paired(street)
    found = statistics(data, ("depth", "thermal"), {"depth": 0.0})
    depths = [data.sample(row, ("depth",)).modalities["depth"] for row in (0, 1, 3, 4)]
    mean, std, _ = looped(depths, 0)
    assert found["depth"].mean == pytest.approx(mean, rel=1e-5)
    assert found["depth"].std == pytest.approx(std, rel=1e-5)
    assert found["depth"].samples == 4
    assert found["depth"].no_data == pytest.approx(1 / 6)
    thermal = [data.sample(row, ("thermal",)).modalities["thermal"] / 255 for row in (0, 2, 3, 4)]
    assert found["thermal"].mean == pytest.approx(looped(thermal, None)[0], rel=1e-5)  # of 8 bits: / 255
    assert found["thermal"].no_data == 0


def test_statistics_of_a_part_are_of_its_rows(street: Path) -> None:
    data = Paired(street)
    part = subset(data, [3, 4])
    depths = [data.sample(row, ("depth",)).modalities["depth"] for row in (3, 4)]
    assert statistics(part, ("depth",))["depth"].mean == pytest.approx(looped(depths, None)[0], rel=1e-5)


def test_a_constant_channel_has_std_1() -> None:
    class Flat(Scenes):
        def __getitem__(self, index: int):  # type: ignore[no-untyped-def]  # noqa: ANN204
            sample = super().__getitem__(index)
            sample.modalities["depth"][:] = 3
            return sample

    assert statistics(Flat(2, size=16, modalities=("depth",)), ("depth",))["depth"].std == (1.0,)


def test_of_much_data_a_sample_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manyview.data.statistics.SAMPLES", 3)
    assert statistics(Scenes(10, size=16, modalities=("depth",)), ("depth",))["depth"].samples == 3


def test_nothing_to_read_is_one_line(street: Path) -> None:
    for file in (street / "depth").iterdir():
        file.write_bytes(b"broken")
    with pytest.raises(UserError, match="of its depth files none"):
        statistics(Paired(street), ("depth",))


def test_no_data_is_one_value_or_one_by_modality() -> None:
    given: list[NoData] = [None, "nan", 0.0, {"depth": 2.0}, {"flow": 1.0}]
    assert [no_data_of(each, "depth") for each in given] == [None, None, 0.0, 2.0, None]


@pytest.mark.parametrize("nodata", [1e20, 9.96921e36, -9999.9, 1e300])
def test_no_data_that_float32_rounds_is_left_out_as_training_fills_it(nodata: float) -> None:
    image = torch.tensor([[[1.0, 3.0, nodata]]])
    found = moments(image, nodata)
    assert (found.mean.tolist(), found.missing) == ([2.0], 1)
    filled = Modality(mean=(2.0,), nodata=nodata).filled(image)
    assert filled.tolist() == [[[1.0, 3.0, 2.0]]]


def test_no_data_that_a_picture_of_8_bits_cannot_hold_leaves_nothing_out() -> None:
    assert moments(torch.zeros(1, 2, 2, dtype=torch.uint8), -9999.5).missing == 0
