"""Files of sensors in their own unit: TIFF with any number of bands, arrays, what is damaged or too large."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from manyview.core.errors import UserError
from manyview.data.dataset import Unreadable
from manyview.data.image import MAX_PIXELS, Header
from manyview.data.raster import decode_raster, raster_header

BANDS = np.arange(5 * 6 * 7).reshape(5, 6, 7)  # 5 bands of 6 x 7 pixels


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32])
@pytest.mark.parametrize("layout", ["interleaved", "planar", "pages"])
def test_bands_come_first_however_they_lie_in_a_tiff(tmp_path: Path, dtype: type[np.generic], layout: str) -> None:
    bands, path = BANDS.astype(dtype), tmp_path / "a.tif"
    if layout == "interleaved":
        tifffile.imwrite(path, bands.transpose(1, 2, 0), photometric="minisblack", planarconfig="contig")
    elif layout == "planar":
        tifffile.imwrite(path, bands, photometric="minisblack", planarconfig="separate")
    else:
        tifffile.imwrite(path, bands, photometric="minisblack", metadata=None)
    for source in (path, path.read_bytes()):
        read = decode_raster(source, MAX_PIXELS)
        assert read.dtype == (torch.uint8 if dtype is np.uint8 else torch.float32)
        np.testing.assert_array_equal(read.numpy(), bands.astype(read.numpy().dtype))
    assert raster_header(path, MAX_PIXELS) == Header("TIFF", f"5 x {np.dtype(dtype)}", 7, 6)


def test_more_bands_than_pixels_are_still_bands(tmp_path: Path) -> None:
    many = np.arange(200 * 3 * 4, dtype=np.uint16).reshape(3, 4, 200)
    tifffile.imwrite(tmp_path / "a.tif", many, photometric="minisblack", planarconfig="contig")
    assert decode_raster(tmp_path / "a.tif", MAX_PIXELS).shape == (200, 3, 4)


def test_a_fourth_band_beside_rgb_is_kept(tmp_path: Path) -> None:
    four = np.random.default_rng(0).integers(0, 256, (6, 7, 4), dtype=np.uint8)
    for name, samples in (("near", "unspecified"), ("alpha", "unassalpha")):
        tifffile.imwrite(tmp_path / f"{name}.tif", four, photometric="rgb", extrasamples=[samples])
        np.testing.assert_array_equal(decode_raster(tmp_path / f"{name}.tif", MAX_PIXELS), four.transpose(2, 0, 1))


def test_one_band_and_rgb_are_as_pillow_reads_them(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 5), 0.25, np.float32)).save(tmp_path / "float.tif")
    Image.new("RGB", (5, 4), (1, 2, 3)).save(tmp_path / "rgb.tif", compression="tiff_lzw")
    assert decode_raster(tmp_path / "float.tif", MAX_PIXELS).unique().tolist() == [0.25]
    assert decode_raster(tmp_path / "rgb.tif", MAX_PIXELS)[:, 0, 0].tolist() == [1, 2, 3]
    assert raster_header(tmp_path / "rgb.tif", MAX_PIXELS) == Header("TIFF", "RGB", 5, 4)


@pytest.mark.parametrize("bands", [1, 2])
def test_what_a_geotiff_declares_to_be_no_data_is_nan(tmp_path: Path, bands: int) -> None:
    values = np.full((bands, 2, 3), -9999, np.float32)
    values[:, 0] = 5
    tag = [(42113, "s", 0, "-9999", True)]
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="minisblack", extratags=tag, metadata=None)
    read = decode_raster(tmp_path / "a.tif", MAX_PIXELS)
    assert read.shape == (bands, 2, 3)
    assert read[:, 0].unique().tolist() == [5.0]
    assert read[:, 1].isnan().all()


def test_arrays_have_a_header_too(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", BANDS.astype(np.float64).transpose(1, 2, 0))
    assert raster_header(tmp_path / "a.npy", MAX_PIXELS) == Header("NPY", "5 x float64", 7, 6)
    assert decode_raster(tmp_path / "a.npy", MAX_PIXELS).shape == (5, 6, 7)


def test_too_large_is_said_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tifffile.imwrite(tmp_path / "a.tif", BANDS.astype(np.uint16), photometric="minisblack", compression="zlib")
    monkeypatch.setattr(tifffile.TiffPageSeries, "asarray", lambda self: pytest.fail("was decoded"))
    for reads in (decode_raster, raster_header):
        with pytest.raises(Unreadable, match="too large: 5 x 6 x 7 pixels, more than max_pixels=50"):
            reads(tmp_path / "a.tif", 50)


@pytest.mark.parametrize("cut", [4, 8, 60, 300])
def test_a_damaged_tiff_is_unreadable(tmp_path: Path, cut: int) -> None:
    tifffile.imwrite(tmp_path / "a.tif", BANDS.astype(np.uint16), photometric="minisblack", compression="zlib")
    whole = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "b.tif").write_bytes(whole[:cut])
    with pytest.raises(Unreadable):
        decode_raster(tmp_path / "b.tif", MAX_PIXELS)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_bytes_changed_anywhere_give_numbers_or_one_line(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", BANDS.astype(np.uint16), photometric="minisblack", compression="zlib")
    whole = bytearray((tmp_path / "a.tif").read_bytes())
    for place in range(0, len(whole), 3):
        changed = whole.copy()
        changed[place] ^= 0xFF
        try:
            shape: tuple[int, ...] | str = tuple(decode_raster(bytes(changed), MAX_PIXELS).shape)
        except Unreadable as error:
            shape = str(error)
        assert "\n" not in shape if isinstance(shape, str) else len(shape) == 3


def test_without_tifffile_one_line_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tifffile.imwrite(tmp_path / "a.tif", BANDS.astype(np.uint16), photometric="minisblack")
    monkeypatch.setitem(sys.modules, "tifffile", None)
    with pytest.raises(UserError, match=r"needs tifffile: pip install 'manyview\[geo\]'"):
        decode_raster(tmp_path / "a.tif", MAX_PIXELS)
