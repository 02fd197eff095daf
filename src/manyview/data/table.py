"""Samples listed in a table: a CSV or Parquet file with a column a modality, whose cells are paths."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.label_maps import is_label_map
from manyview.core.text import printable
from manyview.data.dataset import id_of
from manyview.data.files import Files, Found
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.paired import REFERENCE, Paired
from manyview.data.raster import RASTERS
from manyview.data.splits import Labels, picked, split_named

LABEL, SPLIT = "label", "split"  # columns that hold no paths

Columns = dict[str, list[str]]


class Table(Paired):
    """Samples with a modality from each column of a table, one sample a row; an empty cell is a missing modality.

    file        `.csv` or `.tsv` (commas, semicolons or tabs, a header line, UTF-8), or `.parquet`, for which
                `pip install 'manyview[parquet]'`. Paths are relative to the folder of the file
    modalities  which columns to use, the reference first; by default all that hold paths of images or arrays, but for
                label maps, as in `Paired`
    split       of the rows whose column `split` says so: train, val, test or unlabeled. A table without that column is
                all train
    labels      whether the column `label`, if there is one, holds names of classes; True demands it
    max_pixels  as in `Paired`

    An id is a hash of all paths of a row, whichever are used. No file is opened before it is asked for: a path that
    leads nowhere is unreadable.

    >>> street = Table("street/pairs.csv"); street.counts
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        modalities: Sequence[str] | None = None,
        split: str | None = "train",
        labels: Labels = "auto",
        max_pixels: MaxPixels = MAX_PIXELS,
    ) -> None:
        path = os.fspath(file)
        columns = read_table(path)
        self.max_pixels, self._prefix, self._forms = max_pixels, "", {}
        of_paths = [name for name, cells in columns.items() if name not in (LABEL, SPLIT) and _holds_paths(cells)]
        chosen, self.left_out = _chosen(path, columns, of_paths, modalities)
        rows = _rows(path, columns, chosen, split)
        cells = {name: [columns[name][row] for row in rows] for name in chosen}
        home = os.path.dirname(os.path.abspath(path))
        self._folders = dict.fromkeys(chosen, home)
        self._files = {name: Files({os.fsencode(cell) for cell in held if cell}) for name, held in cells.items()}
        self.found = {name: Found(files, {}, 0, 0) for name, files in self._files.items()}
        places = {name: {each: place for place, each in enumerate(files)} for name, files in self._files.items()}
        self._rows = np.array(
            [[places[name].get(held[i], -1) for name, held in cells.items()] for i in range(len(rows))], dtype=np.int64
        )
        self._stems = _Names(self)
        self.labels, self.classes = _classes(columns, rows, labels)
        self.ids = torch.tensor([id_of("\0".join(columns[name][row] for name in of_paths)) for row in rows])
        if len(self.ids.unique()) < len(rows):
            raise UserError("data", f"{printable(path)}: two rows name the same files; a sample is in a table once")


class _Names(Sequence[str]):
    """What a row is called: the first path that it has."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table._rows)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        rows = zip(self.table._files.values(), self.table._rows[index].tolist(), strict=True)
        return next(files[row] for files, row in rows if row >= 0)


def is_table(path: str) -> bool:
    """Tells whether a path is one of a table, by its name."""
    return path.lower().endswith(tuple(READERS)) and os.path.isfile(path)


def table_splits(path: str) -> list[str]:
    """The splits that a table's column names; none where there is no such column."""
    there = {split_named(cell) for cell in read_table(path).get(SPLIT, [])}
    return [split for split in ("train", "val", "test", "unlabeled") if split in there]


def read_table(path: str) -> Columns:
    """The columns of a table as texts; those called label and split in lower case."""
    try:
        columns = READERS[os.path.splitext(path)[1].lower()](path)
    except (OSError, UnicodeError, csv.Error) as error:
        raise UserError("data", f"{printable(path)} cannot be read as a table: {printable(str(error))}") from None
    own = {name: name.lower() if name.lower() in (LABEL, SPLIT) else name for name in columns}
    return {own[name]: cells for name, cells in columns.items()}


def _read_csv(path: str) -> Columns:
    with open(path, newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        reader = csv.reader(file, delimiter=max(",;\t", key=first.count))
        header = [name.strip() for name in next(reader, [])]
        rows = [[cell.strip() for cell in row] for row in reader if any(cell.strip() for cell in row)]
    if "" in header or len(set(header)) < len(header):
        raise UserError("data", f"{printable(path)}: every column needs a name of its own in the first line")
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            said = f"row {number} has {len(row)} cells, the header {len(header)}"
            raise UserError("data", f"{printable(path)}: {said}; a cell that holds a comma goes between quotes")
    return {name: [row[column] for row in rows] for column, name in enumerate(header)}


def _read_parquet(path: str) -> Columns:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise UserError("data", f"{printable(path)} needs pyarrow: pip install 'manyview[parquet]'") from None
    try:
        table = parquet.read_table(path)
        found: dict[str, list[Any]] = {str(name): table.column(name).to_pylist() for name in table.column_names}
    except (ArrowException, KeyError, ValueError) as error:
        raise UserError("data", f"{printable(path)} is no Parquet file: {printable(str(error))[:200]}") from None
    return {name: ["" if cell is None else str(cell).strip() for cell in cells] for name, cells in found.items()}


READERS: dict[str, Callable[[str], Columns]] = {".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_parquet}


def _chosen(
    path: str, columns: Columns, of_paths: Sequence[str], modalities: Sequence[str] | None
) -> tuple[list[str], tuple[str, ...]]:
    """The columns of modalities, the reference first, and those of label maps that are left out."""
    for name in modalities or ():
        if name not in of_paths:
            known = ", ".join(map(printable, of_paths)) or "none"
            raise UserError("modalities", f"there is no column of paths named {name!r}; there are {known}")
    if modalities is not None:
        return list(modalities), ()
    sensors = [name for name in of_paths if not is_label_map(name)] or of_paths
    if not sensors:
        there = ", ".join(map(printable, columns)) or "none"
        what = f"no column of {printable(path)} holds paths of images or arrays; its columns are {there}"
        raise UserError("data", f"{what}, and paths end in {', '.join(RASTERS)}")
    ordered = sorted(sensors, key=lambda name: tuple(name != usual for usual in REFERENCE))
    return ordered, tuple(name for name in of_paths if name not in sensors)


def _holds_paths(cells: Sequence[str]) -> bool:
    """Whether the first cells that are not empty are names of files that can be decoded, or most of them."""
    first = [cell for cell in cells if cell][:15]
    return sum(cell.lower().endswith(RASTERS) for cell in first) * 2 > len(first)


def _rows(path: str, columns: Columns, chosen: Sequence[str], split: str | None) -> list[int]:
    """The rows of a split that have one of the modalities."""
    named = [split_named(cell) for cell in columns[SPLIT]] if SPLIT in columns else []
    wanted = picked(dict.fromkeys(filter(None, named)), split, path) if named else None
    if not named and split not in (None, "train"):
        raise UserError("split", f"no {split!r}; {printable(path)} has no column {SPLIT!r}; leave the split out")
    found = [
        row
        for row in range(len(columns[chosen[0]]))
        if (wanted is None or named[row] == wanted) and any(columns[name][row] for name in chosen)
    ]
    if not found:
        raise UserError("data", f"{printable(path)}: no row has a path in {', '.join(map(printable, chosen))}")
    return found


def _classes(columns: Columns, rows: Sequence[int], labels: Labels) -> tuple[Tensor | None, tuple[str, ...]]:
    """Numbers of classes, the same in all splits; -1 where a cell is empty."""
    if isinstance(labels, str) and labels != "auto":
        raise UserError("labels", f"the table has its own, in the column {LABEL!r}; give true, false or auto")
    if labels is True and LABEL not in columns:
        raise UserError("labels", f"the table has no column {LABEL!r}; add one, or leave labels out")
    names = sorted({cell for cell in columns.get(LABEL, []) if cell})
    if labels is False or not names:
        return None, ()
    number = {"": -1, **{name: place for place, name in enumerate(names)}}
    return torch.tensor([number[columns[LABEL][row]] for row in rows]), tuple(map(printable, names))
