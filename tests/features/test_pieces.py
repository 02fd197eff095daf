"""Vectors in pieces on disk: sealed, read without running code, and known to be damaged where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.features.pieces import Piece, PieceStore, join_pieces


@pytest.fixture
def store(tmp_path: Path) -> PieceStore:
    """Ten rows in pieces of four; row 5 could not be read."""
    made = PieceStore(tmp_path / "pieces", 10, 4)
    made.write(0, Piece(torch.arange(4), torch.randn(4, 3)))
    made.write(1, Piece(torch.tensor([4, 6, 7]), torch.randn(3, 3).half(), {5: "torn \N{SNOWMAN}"}))
    return made


def test_pieces_cover_all_rows_once(store: PieceStore) -> None:
    assert len(store) == 3
    assert torch.cat([store.rows(number) for number in range(3)]).tolist() == list(range(10))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_is_written_is_read(store: PieceStore, dtype: torch.dtype) -> None:
    vectors = torch.randn(2, 7).to(dtype)
    store.write(2, Piece(torch.tensor([8, 9]), vectors, {}))
    found = store.read(2)
    assert found is not None
    assert torch.equal(found.vectors, vectors)
    assert found.rows.tolist() == [8, 9]


def test_what_could_not_be_read_is_noted(store: PieceStore) -> None:
    found = store.read(1)
    assert found is not None
    assert found.unreadable == {5: "torn \N{SNOWMAN}"}


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "empty", "other rows"])
def test_a_piece_that_is_not_there_or_damaged_is_none(damage: str, store: PieceStore) -> None:
    path = store.path(1)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[-5] ^= damage == "flipped"
        content = bytearray(store.path(0).read_bytes()) if damage == "other rows" else content
        path.write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(damage, len(content))])
    assert store.read(1) is None
    assert store.read(0) is not None


def test_a_changed_reason_is_damage(store: PieceStore) -> None:
    store.path(1).write_bytes(store.path(1).read_bytes().replace(b"torn", b"fine"))
    assert store.read(1) is None


def test_pieces_join_in_their_order(store: PieceStore) -> None:
    joined = join_pieces(
        [Piece(torch.tensor([3]), torch.ones(1, 2)), Piece(torch.tensor([1]), torch.zeros(1, 2), {2: "x"})]
    )
    assert joined.rows.tolist() == [3, 1]
    assert joined.vectors.tolist() == [[1, 1], [0, 0]]
    assert joined.unreadable == {2: "x"}
