"""The file of embeddings: what goes in comes out, and no file of any content does harm."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from manyview.core.errors import UserError
from manyview.embeddings import About, read
from manyview.embeddings import file_format as stored
from manyview.embeddings.columns import Array, Columns
from manyview.embeddings.file_format import write

NAMES = [b"cat/1.png", "Straße/ネコ.png".encode(), b"lone\xffbyte.png", b"two\nlines.png", b"a" * 300 + b".png"]
ENDINGS = ("npz", "parquet")


def about(**changes: Any) -> About:
    told = {
        "encoder": "runs/demo", "network": "patchnet", "weights": "ab" * 16, "size": 32, "mean": (0.5,), "std": (0.5,),
        "view": "image", "data": "photos", "options": {}, "root": "/photos", "classes": ("cat", "<b>"),
        "dtype": "float32", "batch_size": 2, "fingerprint": "f", "version": "0", "broken": {"torn.png": "empty"},
    }  # fmt: skip
    return About(**{**told, **changes})


def in_pieces(names: list[bytes], dtype: str = "float32", size: int = 2) -> tuple[Columns, Iterator[Array]]:
    count = len(names)
    columns = {"path": np.array(names), "id": np.arange(count) + 2**62, "label": np.arange(count) % 3 - 1}
    vectors = np.random.default_rng(0).standard_normal((count, 4)).astype(dtype)
    return columns, (vectors[start : start + size] for start in range(0, count, size))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_written_is_read_again(tmp_path: Path, ending: str, dtype: str) -> None:
    path = tmp_path / f"e.{ending}"
    write(path, about(dtype=dtype), *in_pieces(NAMES, dtype))
    found = read(path)
    assert found.about == about(dtype=dtype)
    assert found.paths.tolist() == NAMES
    assert found.ids.tolist() == [number + 2**62 for number in range(5)]
    assert found.labels.tolist() == [-1, 0, 1, -1, 0]
    assert found.vectors.dtype == getattr(torch, dtype)
    assert np.array_equal(found.vectors.numpy(), np.concatenate(list(in_pieces(NAMES, dtype)[1])))


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_are_safe_to_print_and_files_are_as_the_system_has_them(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"e.{ending}", about(), *in_pieces(NAMES))
    found = read(tmp_path / f"e.{ending}")
    assert found.names[:4] == ["cat/1.png", "Straße/ネコ.png", r"lone\xffbyte.png", r"two\nlines.png"]
    assert os.fsencode(found.file(2) or "") == b"/photos/lone\xffbyte.png"
    assert [found.label(row) for row in range(3)] == ["", "cat", "<b>"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_embeddings_are_the_same_bytes_however_they_were_cut(tmp_path: Path, ending: str) -> None:
    files = [tmp_path / f"{size}.{ending}" for size in (1, 5)]
    write(files[0], about(), *in_pieces(NAMES, size=1))
    write(files[1], about(), *in_pieces(NAMES, size=5))
    assert files[0].read_bytes() == files[1].read_bytes()


def members(path: Path, /, **changes: Any) -> None:
    """Writes an npz file with some members changed; None leaves one out."""
    write(path, about(), *in_pieces(NAMES))
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def told(**changes: Any) -> Any:
    return np.array(json.dumps({**json.loads(about().to_json()), **changes}).encode())


HOSTILE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no zip": lambda path: path.write_bytes(b"PK" + bytes(100)),
    "cut off": lambda path: cut_off(path),
    "no vectors": lambda path: members(path, vector=None),
    "objects": lambda path: members(path, path=np.array([{}] * 5, dtype=object)),
    "objects as vectors": lambda path: members(path, vector=np.array([[{}] * 4] * 5, dtype=object)),
    "a vector too few": lambda path: members(path, vector=np.zeros((4, 4), np.float32)),
    "flat vectors": lambda path: members(path, vector=np.zeros(5, np.float32)),
    "whole numbers": lambda path: members(path, vector=np.zeros((5, 4), np.int32)),
    "no numbers": lambda path: members(path, vector=np.zeros((5, 0), np.float32)),
    "by columns": lambda path: members(path, vector=np.asfortranarray(np.zeros((5, 4), np.float32))),
    "ids that are floats": lambda path: members(path, id=np.zeros(5)),
    "paths that are text": lambda path: members(path, path=np.array(["a"] * 5)),
    "a label of no class": lambda path: members(path, label=np.full(5, 2)),
    "a label below none": lambda path: members(path, label=np.full(5, -2)),
    "about nothing": lambda path: members(path, about=np.array(b"null")),
    "about numbers": lambda path: members(path, about=np.zeros(3)),
    "another format": lambda path: members(path, about=told(manyview_embeddings=2)),
    "a size in words": lambda path: members(path, about=told(size="large")),
    "classes that are no names": lambda path: members(path, about=told(classes=[1, 2])),
    "more than we know": lambda path: members(path, about=told(more=1)),
    "compressed": lambda path: packed(path),
    "a size that is a lie": lambda path: lying(path, "vector", b"(5, 4), }", b"(5000000, 4), }"),
    "ids that would fill the memory": lambda path: lying(path, "id", b"(5,), }", b"(9999999999999,), }"),
    "a size beyond all numbers": lambda path: lying(path, "vector", b"(5, 4), }", b"(4294967296, 4294967296), }"),
    "a size below none": lambda path: lying(path, "label", b"(5,), }", b"(-5,), }"),
    "bytes as vectors": lambda path: members(path, vector=np.zeros((5, 4), np.int8)),
    "a normalisation that is none": lambda path: members(path, about=told(std=[0.0])),
    "a normalisation of NaN": lambda path: members(path, about=told(mean=[float("nan")])),
    "no normalisation": lambda path: members(path, about=told(mean=[], std=[])),
    "half a normalisation": lambda path: members(path, about=told(mean=[0.5, 0.5])),
    "a size of pictures that would fill the memory": lambda path: members(path, about=told(size=10**9)),
    "nested deeply": lambda path: members(path, about=np.array(b"[" * 100_000)),
}


def cut_off(path: Path) -> None:
    members(path)
    path.write_bytes(path.read_bytes()[:-200])


def packed(path: Path) -> None:
    members(path)
    with np.load(path) as file:
        np.savez_compressed(path, **{name: file[name] for name in file.files})


def lying(path: Path, name: str, shape: bytes, lie: bytes) -> None:
    """The header of a member says another shape, which its file is too small for."""
    members(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    assert shape.ljust(len(lie)) in content[f"{name}.npy"]
    content[f"{name}.npy"] = content[f"{name}.npy"].replace(shape.ljust(len(lie)), lie)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_is_none_of_ours_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    HOSTILE[kind](tmp_path / "e.npz")
    with pytest.raises(ValueError, match=r"^embeddings: .*e\.npz is damaged or none of ours: .+") as caught:
        read(tmp_path / "e.npz")
    assert "\n" not in str(caught.value)


def test_flipped_bits_and_files_cut_short_do_no_harm(tmp_path: Path) -> None:
    path, draw = tmp_path / "e.npz", np.random.default_rng(0)
    write(path, about(), *in_pieces(NAMES))
    whole = path.read_bytes()
    for bit in draw.integers(8 * len(whole), size=300):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged[: draw.integers(len(whole))] if bit % 3 == 0 else damaged)
        with suppress(UserError):  # of a vector's number nobody can tell
            found = read(path)
            assert (found.ids.tolist(), found.paths.tolist()) == ([2**62 + row for row in range(5)], NAMES)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'pip install "manyview\[parquet\]"'):
        read(tmp_path / "e.parquet")


def test_another_ending_or_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a file that ends in \.npz or \.parquet, got .*e\.csv"):
        read(tmp_path / "e.csv")
    with pytest.raises(ValueError, match="there is no file"):
        read(tmp_path / "e.npz")
