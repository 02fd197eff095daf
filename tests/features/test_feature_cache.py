"""Features on disk: kept in pieces, gone on with after an interruption, mended where damaged, bounded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.features.feature_cache import (
    PIECE,
    FeatureCache,
    Piece,
    PieceStore,
    join_pieces,
    without_cache,
)

COUNT = 2 * PIECE + 100
KEY, OTHER = "a" * 32, "b" * 32


class Embedder:
    """Embeds each row as its number; counts the pieces that it has made, and is stopped after some."""

    def __init__(self, stop: int = 99, unreadable: tuple[int, ...] = ()) -> None:
        self.pieces: list[int] = []
        self.stop, self.unreadable = stop, torch.tensor(unreadable)

    def __call__(self, pieces: list[Tensor]) -> Iterator[Piece]:
        for rows in pieces:
            if len(self.pieces) == self.stop:
                raise KeyboardInterrupt
            self.pieces.append(int(rows[0]) // PIECE)
            rows = rows[~torch.isin(rows, self.unreadable)]
            yield Piece(rows, torch.stack([rows.float(), -rows.float()], 1))


def same(one: Piece, other: Piece) -> bool:
    return torch.equal(one.rows, other.rows) and torch.equal(one.vectors, other.vectors)


def test_what_was_kept_is_not_embedded_again(tmp_path: Path) -> None:
    embedder = Embedder()
    first = FeatureCache(tmp_path).features(KEY, COUNT, embedder)
    again = FeatureCache(tmp_path).features(KEY, COUNT, embedder)
    assert embedder.pieces == [0, 1, 2]
    assert first.rows.tolist() == list(range(COUNT))
    assert same(first, again)
    assert same(first, without_cache(COUNT, Embedder()))


def test_interrupted_work_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        FeatureCache(tmp_path).features(KEY, COUNT, Embedder(stop=2))
    rest = Embedder()
    found = FeatureCache(tmp_path).features(KEY, COUNT, rest)
    assert rest.pieces == [2]
    assert found.vectors[:, 0].tolist() == list(range(COUNT))


def test_a_damaged_piece_is_made_again(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    cache.features(KEY, COUNT, Embedder())
    path = tmp_path / KEY / "000001.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    mending = Embedder()
    found = cache.features(KEY, COUNT, mending)
    assert mending.pieces == [1]
    assert found.vectors[:, 0].tolist() == list(range(COUNT))
    cache.features(KEY, COUNT, Embedder(stop=0))  # it is whole again


def test_rows_that_could_not_be_read_are_left_out(tmp_path: Path) -> None:
    for _ in range(2):
        found = FeatureCache(tmp_path).features(KEY, COUNT, Embedder(unreadable=(0, 1500)))
        assert found.rows.tolist() == [row for row in range(COUNT) if row not in (0, 1500)]
        assert len(found.vectors) == len(found.rows)


def test_rows_that_have_become_readable_are_embedded(tmp_path: Path) -> None:
    FeatureCache(tmp_path).features(KEY, COUNT, Embedder(unreadable=(0, 1500, 1501)))
    asked: list[list[int]] = []

    def readable(rows: Tensor) -> Tensor:
        asked.append(rows.tolist())
        return rows[rows != 1501]

    mending = Embedder()
    found = FeatureCache(tmp_path).features(KEY, COUNT, mending, readable)
    assert asked == [[0, 1500, 1501]]
    assert mending.pieces == [0]  # both rows at once
    assert found.rows.tolist() == found.vectors[:, 0].tolist() == [row for row in range(COUNT) if row != 1501]
    again = FeatureCache(tmp_path).features(KEY, COUNT, mending, lambda rows: rows[:0])  # they are kept
    assert same(again, found)
    assert mending.pieces == [0]


def test_a_folder_that_is_only_to_be_read_from_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Embedder()
    FeatureCache(tmp_path).features(KEY, COUNT, embedder)

    def refused(*_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    assert len(FeatureCache(tmp_path).features(KEY, COUNT, embedder).rows) == COUNT
    assert embedder.pieces == [0, 1, 2]


def test_checkpoints_of_probes_that_were_interrupted_count_and_go_too(tmp_path: Path) -> None:
    old, mine = tmp_path / f"{OTHER}.probe", tmp_path / "notes.probe"
    for file in (old, mine):
        file.write_bytes(b"x" * 1000)
        os.utime(file, (1, 1))
    FeatureCache(tmp_path).features(KEY, COUNT, Embedder())
    assert old.exists()
    size = sum(file.stat().st_size for file in (tmp_path / KEY).iterdir())
    FeatureCache(tmp_path, limit=size + 500).trim(KEY)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([KEY, mine.name])


def test_what_was_not_used_for_longest_goes_when_there_is_too_much(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    cache.features(KEY, COUNT, Embedder())
    size = sum(file.stat().st_size for file in (tmp_path / KEY).iterdir())
    os.utime(tmp_path / KEY, (1, 1))
    cache.features(OTHER, COUNT, Embedder())
    os.utime(tmp_path / OTHER, (2, 2))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "only copy.txt").write_text("x" * size)
    FeatureCache(tmp_path, limit=2 * size + 100).features("c" * 32, COUNT, Embedder())
    assert sorted(home.name for home in tmp_path.iterdir()) == [OTHER, "c" * 32, "thesis"]
    FeatureCache(tmp_path, limit=1).features("d" * 32, COUNT, Embedder())
    assert sorted(home.name for home in tmp_path.iterdir()) == ["d" * 32, "thesis"]  # what is needed now stays


def test_what_is_read_counts_as_used(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    for key in (KEY, OTHER):
        cache.features(key, COUNT, Embedder())
        os.utime(tmp_path / key, (1, 1))
    cache.features(KEY, COUNT, Embedder())
    assert (tmp_path / KEY).stat().st_mtime > 1 == (tmp_path / OTHER).stat().st_mtime


def test_a_folder_that_cannot_be_written_to_costs_a_warning_and_not_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="features are not kept: .* cannot be written to") as warned:
        found = FeatureCache(tmp_path / "file").features(KEY, COUNT, Embedder())
    assert len(found.vectors) == COUNT
    assert len(warned) == 1


def test_the_folder_is_that_of_the_environment_or_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path))
    assert FeatureCache().folder == tmp_path
    monkeypatch.delenv("MANYVIEW_CACHE")
    assert FeatureCache().folder == Path.home() / ".cache" / "manyview" / "features"


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
