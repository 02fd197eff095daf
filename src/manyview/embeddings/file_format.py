"""Embeddings in a file: the vectors, what each is of, and which encoder made them. Reading one executes nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.text import printable, reason
from manyview.embeddings import npz_file, parquet_file
from manyview.embeddings.about import About
from manyview.embeddings.columns import PROJECTION, Array, Columns, Pieces

DTYPES = ("float32", "float16")
SIZES = (1, 1 << 14)  # pixels that a picture can have on a side


@dataclass(frozen=True, eq=False)
class Embeddings:
    """The embeddings of a file, as `read` returns them.

    vectors  (n, d) float32 or float16; those of an .npz file stay on disk until they are accessed
    ids      (n,) int64, as the data set has them
    labels   (n,) int64, -1 where there is none
    paths    (n,) bytes as the file system has them, relative to `about.root`; else the data set's names of its images

    projections  (n, p) the head's outputs of unit length, for a run with one encoder per view: the cosine between
                 those of two views says how well they match. None for other encoders
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
        """The vectors at all positions (n, rows, columns, d), of a file that was written with `patches`."""
        if not self.about.grid:
            raise UserError("patches", "the file has one vector an image; write it with --patches")
        places: Tensor = self.vectors.unflatten(1, self.about.grid)
        return places

    @property
    def described(self) -> str:
        """Describes how many images of which data these are, with the view where there are several."""
        view = "" if self.projections is None else f"{self.about.view} "
        return printable(f"{len(self):,} {view}images of {self.about.taken}{self.about.data}")

    @property
    def names(self) -> list[str]:
        return [self.name(row) for row in range(len(self))]

    def name(self, row: int) -> str:
        """Returns the relative path, safe to print."""
        return printable(os.fsdecode(bytes(self.paths[row])))

    def file(self, row: int) -> str | None:
        """Returns the path of the image at the time when it was embedded; None where it is no file."""
        root = self.about.root
        return None if root is None else os.path.join(root, os.fsdecode(bytes(self.paths[row])))

    def label(self, row: int) -> str:
        """Returns the name of the class; empty where there is none."""
        number = int(self.labels[row])
        return printable(self.about.classes[number]) if number >= 0 else ""


def read(path: str | Path) -> Embeddings:
    """Reads the embeddings in an .npz or .parquet file.

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


def checked(path: str | Path) -> Path:
    """Returns a path whose ending is one that can be read and written here, or refuses it."""
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


READERS: dict[str, Callable[[Path], tuple[dict[str, Array], About]]] = {
    ".npz": npz_file.read,
    ".parquet": parquet_file.read,
}
WRITERS: dict[str, Callable[..., None]] = {
    ".npz": npz_file.write,
    ".parquet": parquet_file.write,
}
