"""idx files, whole and damaged, and the class list of ImageNet-100."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

from manyview.core.errors import UserError
from manyview.data.published import WNIDS, idx_files, read_idx
from tests.data.fakes import idx, mnist


def test_shape_and_bytes_are_read(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    idx(tmp_path / "a", array)
    assert read_idx(tmp_path / "a").tolist() == array.tolist()


def test_both_files_must_be_there(tmp_path: Path) -> None:
    mnist(tmp_path, ".")
    assert idx_files(tmp_path, "mnist", MNIST, {"train": True}) is not None
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    assert idx_files(tmp_path, "mnist", MNIST, {"train": True}) is None
    assert idx_files(tmp_path, "mnist", MNIST, {"train": False}) is not None


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x0d\1\0\0\0\1\0", b"\0\0\x08\1\0\0\0\5\0"])
def test_another_or_shorter_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=f"not an idx file of bytes, or cut short at {len(content)} bytes"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("damage", ["no gzip", "cut", "changed"])
def test_a_damaged_gzip_is_refused(tmp_path: Path, damage: str) -> None:
    idx(tmp_path / "a", np.arange(200, dtype=np.uint8))
    packed = bytearray(gzip.compress((tmp_path / "a").read_bytes()))
    packed[15] ^= 0xFF if damage == "changed" else 0
    content = {"no gzip": b"text", "cut": bytes(packed[:-20]), "changed": bytes(packed)}[damage]
    (tmp_path / "a.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.gz: .*fetch it again"):
        read_idx(tmp_path / "a.gz")


def test_there_are_a_hundred_different_wnids_in_order() -> None:
    assert len(WNIDS) == len(set(WNIDS)) == 100
    assert list(WNIDS) == sorted(WNIDS)
    assert all(re.fullmatch(r"n\d{8}", wnid) for wnid in WNIDS)


def test_the_two_misprints_are_mended() -> None:
    assert {"n03777754", "n03930630"} <= set(WNIDS)
    assert not {"n0377754", "n03903630"} & set(WNIDS)
