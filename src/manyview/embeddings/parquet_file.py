"""Embeddings as a .parquet file, a row an image, with pyarrow."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from manyview.core.errors import UserError
from manyview.embeddings.about import About
from manyview.embeddings.columns import COLUMNS, PROJECTION, Array, Columns, Pieces

GROUP = 16  # pieces in a row group of Parquet
ROWS = 8192  # of Parquet, read at a time
PACKED = 100  # times that vectors may be larger than their Parquet file, which somebody may have compressed


def write(draft: Path, about: About, columns: Columns, parts: Mapping[str, Pieces]) -> None:
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


def read(path: Path) -> tuple[dict[str, Array], About]:
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
    """Allocates an array for a column of vectors, no larger than its Parquet file can be."""
    import pyarrow as pa

    kind = file.schema_arrow.field(name).type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise UserError(name, f"expected lists of one length, got {kind}")
    shape, dtype = (file.metadata.num_rows, kind.list_size), np.dtype(kind.value_type.to_pandas_dtype())
    if math.prod(shape) * dtype.itemsize > PACKED * path.stat().st_size:
        raise UserError(name, f"the file is too small to hold {shape[0]} vectors of {shape[1]} numbers")
    return np.empty(shape, dtype)
