"""Embeddings in a file: the vectors, what each is of, and which encoder made them. Nothing in a file is executed."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.text import printable, reason
from manyview.embeddings.about import About

COLUMNS = ("path", "id", "label", "vector")
PROJECTION = "projection"  # a further column, of embeddings that can be compared across views
DTYPES = ("float32", "float16")
LIKE_ZIP = (1980, 1, 1, 0, 0, 0)  # the first date that zip knows: the same embeddings are the same bytes
GROUP = 16  # pieces in a row group of Parquet
ROWS = 8192  # of Parquet, read at a time
PACKED = 100  # times that vectors may be larger than their Parquet file, which somebody may have compressed
SIZES = (1, 1 << 14)  # pixels that a picture can have on a side

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
"""Columns by name: path (n,) bytes, id (n,), label (n,); where they are read also vector (n, d), and a projection."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What `read` gives.

    vectors  (n, d) float32 or float16; of an .npz file it stays on the disk until it is looked at
    ids      (n,) int64, as the data set has them
    labels   (n,) int64, -1 where there is none
    paths    (n,) bytes as the file system has them, relative to `about.root`; else what the data set calls an image

    projections  (n, p) what the head makes of the vectors, at unit length, of a run with an encoder a view: the cosine
                 of those of two views says how well they fit. None of other encoders
    """

    vectors: Tensor
    ids: Tensor
    labels: Tensor
    paths: Array
    about: About
    projections: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def patches(self) -> Tensor:
        """The vectors of places (n, rows, columns, d), of a file that was written with `patches`."""
        if not self.about.grid:
            raise UserError("patches", "the file has one vector an image; write it with --patches")
        places: Tensor = self.vectors.unflatten(1, self.about.grid)
        return places

    @property
    def described(self) -> str:
        """How many images of what these are, with the view where there are others to compare with."""
        view = "" if self.projections is None else f"{self.about.view} "
        return printable(f"{len(self):,} {view}images of {self.about.taken}{self.about.data}")

    @property
    def names(self) -> list[str]:
        return [self.name(row) for row in range(len(self))]

    def name(self, row: int) -> str:
        """The relative path, safe to print."""
        return printable(os.fsdecode(bytes(self.paths[row])))

    def file(self, row: int) -> str | None:
        """The place where the image is, or was when it was embedded."""
        root = self.about.root
        return None if root is None else os.path.join(root, os.fsdecode(bytes(self.paths[row])))

    def label(self, row: int) -> str:
        """The class's name; empty where there is none."""
        number = int(self.labels[row])
        return printable(self.about.classes[number]) if number >= 0 else ""


def read(path: str | Path) -> Embeddings:
    """The embeddings in an .npz or .parquet file.

    >>> embeddings = read("embeddings.npz")
    >>> embeddings.vectors.shape, embeddings.names[0]
    """
    path = checked(path)
    if not path.is_file():
        raise UserError("embeddings", f"there is no file {printable(str(path))}; `manyview embed` writes one")
    try:
        columns, about = READERS[path.suffix](path)
        _check(columns, about)
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # a file of any content raises almost anything
        why = reason(error)[:200]
        raise UserError("embeddings", f"{printable(str(path))} is damaged or none of ours: {why}") from error
    vectors, ids, labels = (torch.from_numpy(columns[name]) for name in ("vector", "id", "label"))
    projections = torch.from_numpy(columns[PROJECTION]) if PROJECTION in columns else None
    return Embeddings(vectors, ids, labels, columns["path"], about, projections)


def write(
    path: str | Path,
    about: About,
    columns: Columns,
    vectors: Iterator[Array],
    projections: Iterator[Array] | None = None,
) -> None:
    """Writes columns and pieces (m, d) of the vectors to a file, which appears whole or not at all.

    projections: pieces (m, p), as long as those of the vectors. Only a few pieces are in memory at a time.
    """
    path, parts = checked(path), {"vector": vectors, **({} if projections is None else {PROJECTION: projections})}
    with atomic_write(path) as draft:
        WRITERS[path.suffix](draft, about, columns, {name: Pieces.of(each) for name, each in parts.items()})


@dataclass(frozen=True)
class Pieces:
    """The rows of one array, piece by piece; the first says what they are like."""

    first: Array
    every: Iterator[Array]

    @classmethod
    def of(cls, pieces: Iterator[Array]) -> Pieces:
        first = next(pieces)
        return cls(first, chain([first], pieces))


def checked(path: str | Path) -> Path:
    """A path whose ending is one that can be read and written here."""
    path = Path(path)
    if path.suffix not in READERS:
        raise UserError("embeddings", f"expected a file that ends in .npz or .parquet, got {printable(str(path))}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise UserError("embeddings", '.parquet needs pyarrow: pip install "manyview[parquet]", or choose .npz')
    return path


def _check(columns: Columns, about: About) -> None:
    vectors, count = columns["vector"], len(columns["id"])
    for name in ("vector", PROJECTION):
        found = columns.get(name, vectors)
        if found.ndim != 2 or not found.size or found.dtype.name not in DTYPES or len(found) != len(vectors):
            raise UserError(name, f"expected (n, d) {' or '.join(DTYPES)}, got {found.shape} {found.dtype}")
    for name in ("id", "label"):
        if columns[name].shape != (len(vectors),) or columns[name].dtype != np.int64:
            raise UserError(None, f"{name}: expected ({len(vectors)},) int64, got {columns[name].shape}")
    if columns["path"].shape != (count,) or columns["path"].dtype.kind != "S":
        raise UserError("path", f"expected ({count},) bytes, got {columns['path'].shape} {columns['path'].dtype}")
    if len(about.mean) != len(about.std) or not all(map(math.isfinite, about.mean + about.std)) or min(about.std) <= 0:
        raise UserError("mean and std", f"expected as many of each, and std above 0, got {about.mean} and {about.std}")
    if not SIZES[0] <= about.size <= SIZES[1]:
        raise UserError("size", f"expected {SIZES[0]} to {SIZES[1]} pixels, got {about.size}")
    if about.grid and (len(about.grid) != 3 or min(about.grid) < 1 or math.prod(about.grid) != vectors.shape[1]):
        raise UserError("grid", f"expected rows, columns and length of {vectors.shape[1]} numbers, got {about.grid}")
    labels = columns["label"]
    if labels.min() < -1 or labels.max() >= len(about.classes):
        raise UserError("label", f"expected -1 to {len(about.classes) - 1}, got {labels.min()} to {labels.max()}")


def _write_npz(draft: Path, about: About, columns: Columns, parts: Mapping[str, Pieces]) -> None:
    """An uncompressed zip archive of .npy files, as `numpy.savez` writes, but never all vectors in memory."""
    whole = {"about": np.array(about.to_json()), **{name: columns[name] for name in COLUMNS[:-1]}}
    with zipfile.ZipFile(draft, "w") as archive:
        for name, array in whole.items():
            _member(archive, name, array.dtype, array.shape, [array])
        for name, part in parts.items():
            _member(archive, name, part.first.dtype, (len(columns["id"]), part.first.shape[1]), part.every)


def _member(
    archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], arrays: Iterable[Array]
) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(zipfile.ZipInfo(f"{name}.npy", LIKE_ZIP), "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for array in arrays:
            file.write(array.tobytes())


def _read_npz(path: Path) -> tuple[dict[str, Array], About]:
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


def _mapped(path: Path, info: zipfile.ZipInfo) -> Array:
    """A member as it lies in the file, read when it is looked at; changes of it stay in memory."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = file.read(4)  # of the name and of what follows it
        start = file.tell() + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        file.seek(start)
        shape, dtype = _header(file, info)
        return np.memmap(path, dtype, "c", file.tell(), shape)


def _header(file: IO[bytes], info: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and dtype of an .npy member, which must be as large as they say: no room is made for a lie."""
    start = file.tell()
    if np.lib.format.read_magic(file) != (1, 0):
        raise UserError(None, f"{info.filename} is no .npy of version 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    size = file.tell() - start + dtype.itemsize * math.prod(shape)
    if by_columns or dtype.hasobject or min(shape, default=0) < 0 or size != info.file_size:
        raise UserError(None, f"the size of {info.filename} is not what it says")
    return shape, dtype


def _write_parquet(draft: Path, about: About, columns: Columns, parts: Mapping[str, Pieces]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = {name: pa.list_(pa.from_numpy_dtype(each.first.dtype), each.first.shape[1]) for name, each in parts.items()}
    paths = pa.array(columns["path"].tolist(), pa.binary())
    with suppress(pa.ArrowInvalid):  # not all are UTF-8
        paths = paths.cast(pa.string())
    kinds = zip(COLUMNS, (paths.type, pa.int64(), pa.string()), strict=False)
    schema = pa.schema([*kinds, *lists.items()], metadata={"manyview": about.to_json()})
    classes = np.array([*about.classes, None], dtype=object)[columns["label"]]  # the last is for -1
    with pq.ParquetWriter(draft, schema, compression="none", use_dictionary=["label"]) as writer:
        end = 0
        while some := list(islice(zip(*(each.every for each in parts.values()), strict=True), GROUP)):
            groups = [np.concatenate(each) for each in zip(*some, strict=True)]
            start, end = end, end + len(groups[0])
            arrays = [
                paths[start:end],
                pa.array(columns["id"][start:end]),
                pa.array(classes[start:end], pa.string()),
                *(
                    pa.FixedSizeListArray.from_arrays(pa.array(group.reshape(-1)), type=kind)
                    for group, kind in zip(groups, lists.values(), strict=True)
                ),
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def _read_parquet(path: Path) -> tuple[dict[str, Array], About]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:  # else all of it is held as well
        about = About.from_json((file.schema_arrow.metadata or {}).get(b"manyview", b"null"))
        lists = [name for name in ("vector", PROJECTION) if name in file.schema_arrow.names]
        arrays = {name: _room(file, name, path) for name in lists or ["vector"]}
        paths, ids, labels, at = [], [], [], 0
        number = {name: index for index, name in enumerate(about.classes)} | {None: -1}
        for batch in file.iter_batches(ROWS, columns=[*COLUMNS[:-1], *arrays]):
            path_, id_, label = (batch.column(name) for name in COLUMNS[:-1])
            for name, array in arrays.items():
                array[at : at + len(batch)] = batch.column(name).flatten().to_numpy().reshape(len(batch), -1)
            paths.append(np.array([os.fsencode(each) for each in path_.to_pylist()]))
            ids.append(id_.to_numpy(zero_copy_only=False))
            labels.append(np.array([number[name] for name in label.to_pylist()], dtype=np.int64))
            at += len(batch)
    columns = {"path": np.concatenate(paths), "id": np.concatenate(ids), "label": np.concatenate(labels)}
    return {**columns, **arrays}, about


def _room(file: Any, name: str, path: Path) -> Array:
    """An empty array for a column of vectors, no larger than its Parquet file can be."""
    import pyarrow as pa

    kind = file.schema_arrow.field(name).type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise UserError(name, f"expected lists of one length, got {kind}")
    shape, dtype = (file.metadata.num_rows, kind.list_size), np.dtype(kind.value_type.to_pandas_dtype())
    if math.prod(shape) * dtype.itemsize > PACKED * path.stat().st_size:
        raise UserError(name, f"the file is too small to hold {shape[0]} vectors of {shape[1]} numbers")
    return np.empty(shape, dtype)


READERS: dict[str, Callable[[Path], tuple[dict[str, Array], About]]] = {".npz": _read_npz, ".parquet": _read_parquet}
WRITERS: dict[str, Callable[..., None]] = {
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}
