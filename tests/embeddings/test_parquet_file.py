"""Embeddings as .parquet files."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyview.embeddings import read
from manyview.embeddings.file_format import write
from tests.embeddings.test_file_format import NAMES, about, in_pieces


def test_pyarrow_reads_a_parquet_file_without_us(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write(tmp_path / "e.parquet", about(), *in_pieces(NAMES[:2]))
    rows = pq.read_table(tmp_path / "e.parquet").to_pylist()
    assert [(row["path"], row["label"], len(row["vector"])) for row in rows] == [
        ("cat/1.png", None, 4),
        ("Straße/ネコ.png", "cat", 4),
    ]


def test_a_parquet_file_that_is_none_of_ours_is_refused_in_one_line(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "e.parquet"
    write(path, about(), *in_pieces(NAMES))
    table = pq.read_table(path)
    vector = table.column("vector").combine_chunks()
    ragged = table.set_column(3, "vector", pa.array([[1.0], [1.0, 2.0], [], [1.0], [1.0]]))
    missing = table.set_column(3, "vector", pa.array([None, *vector.to_pylist()[1:]], vector.type))
    unknown = table.set_column(2, "label", pa.array(["dog"] * 5))
    nameless = table.set_column(0, "path", pa.array([None, "a", "b", "c", "d"]))
    no_id = table.set_column(1, "id", pa.array([None, 1, 2, 3, 4], pa.int64()))
    for bad in (
        ragged,
        missing,
        unknown,
        nameless,
        no_id,
        table.drop_columns(["path"]),
        table.replace_schema_metadata(),
    ):
        pq.write_table(bad, path)
        with pytest.raises(ValueError, match="damaged or none of ours"):
            read(path)
    path.write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(ValueError, match="damaged or none of ours"):
        read(path)
