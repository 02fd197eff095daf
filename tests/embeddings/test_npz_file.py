"""Embeddings as .npz files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from manyview.embeddings import npz_file, read
from manyview.embeddings.file_format import write
from tests.embeddings.test_file_format import NAMES, about, in_pieces


def test_numpy_reads_an_npz_file_without_us_and_without_pickle(tmp_path: Path) -> None:
    write(tmp_path / "e.npz", about(), *in_pieces(NAMES))
    with np.load(tmp_path / "e.npz", allow_pickle=False) as file:
        assert file["vector"].shape == (5, 4)
        assert np.char.decode(file["path"][:2], "utf-8").tolist() == ["cat/1.png", "Straße/ネコ.png"]
        assert json.loads(file["about"].item())["encoder"] == "runs/demo"


def test_vectors_of_an_npz_file_stay_on_the_disk(tmp_path: Path) -> None:
    write(tmp_path / "e.npz", about(), *in_pieces(NAMES))
    found, mapped = read(tmp_path / "e.npz"), Path("/proc/self/maps")
    assert len(found)
    if mapped.exists():
        assert str(tmp_path / "e.npz") in mapped.read_text()


def test_too_little_memory_is_not_said_to_be_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    write(tmp_path / "e.npz", about(), *in_pieces(NAMES))
    monkeypatch.setattr(npz_file, "_mapped", full)
    with pytest.raises(MemoryError):
        read(tmp_path / "e.npz")
