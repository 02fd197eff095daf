"""Embeddings as an .npz file: an uncompressed archive whose vectors stay on the disk until they are read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from manyview.core.errors import UserError
from manyview.embeddings.about import About
from manyview.embeddings.columns import COLUMNS, PROJECTION, Array, Columns, Pieces

LIKE_ZIP = (1980, 1, 1, 0, 0, 0)  # the first date that zip knows: the same embeddings are the same bytes


def write(draft: Path, about: About, columns: Columns, parts: Mapping[str, Pieces]) -> None:
    """Writes an uncompressed zip archive of .npy files like `numpy.savez`, without holding all vectors in memory."""
    whole = {"about": np.array(about.to_json()), **{name: columns[name] for name in COLUMNS[:-1]}}
    with zipfile.ZipFile(draft, "w") as archive:
        for name, array in whole.items():
            _member(archive, name, array.dtype, array.shape, [array])
        for name, part in parts.items():
            _member(archive, name, part.first.dtype, (len(columns["id"]), part.first.shape[1]), part.every)


def read(path: Path) -> tuple[dict[str, Array], About]:
    with zipfile.ZipFile(path) as archive:
        missing = {f"{name}.npy" for name in ("about", *COLUMNS)} - set(archive.namelist())
        if missing:
            raise UserError(None, f"it has no {', '.join(sorted(missing))}")
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise UserError(None, "it is compressed; keep it as `manyview embed` wrote it")
        columns = {}
        for name in ("about", *COLUMNS[:-1]):
            with archive.open(f"{name}.npy") as member:
                shape, dtype = _header(member, archive.getinfo(f"{name}.npy"))
                columns[name] = np.frombuffer(bytearray(member.read()), dtype).reshape(shape)
        for name in {"vector.npy", f"{PROJECTION}.npy"} & set(archive.namelist()):
            columns[name.removesuffix(".npy")] = _mapped(path, archive.getinfo(name))
    return columns, About.from_json(columns.pop("about").item())


def _member(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], arrays: Iterable[Array]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy", LIKE_ZIP), "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for array in arrays:
            file.write(array.tobytes())


def _mapped(path: Path, info: zipfile.ZipInfo) -> Array:
    """Maps a member of the archive into memory: it is read when it is accessed, and changes do not reach the file."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = file.read(4)  # of the name and of what follows it
        start = file.tell() + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        file.seek(start)
        shape, dtype = _header(file, info)
        return np.memmap(path, dtype, "c", file.tell(), shape)


def _header(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Reads the shape and dtype of an .npy member, and refuses one whose size does not match them."""
    start = file.tell()
    if np.lib.format.read_magic(file) != (1, 0):
        raise UserError(None, f"{info.filename} is no .npy of version 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    size = file.tell() - start + dtype.itemsize * math.prod(shape)
    if by_columns or dtype.hasobject or min(shape, default=0) < 0 or size != info.file_size:
        raise UserError(None, f"the size of {info.filename} is not what it says")
    return shape, dtype
