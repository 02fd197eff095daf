"""Features on disk: kept in pieces, gone on with after an interruption, mended where damaged, bounded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from manyview.features.feature_cache import PIECE, FeatureCache, Made, default_folder, without

COUNT = 2 * PIECE + 100
KEY, OTHER = "a" * 32, "b" * 32


class Looking:
    """Sees each row's number; counts the pieces that it has looked at, and is stopped after some."""

    def __init__(self, stop: int = 99, unreadable: tuple[int, ...] = ()) -> None:
        self.pieces: list[int] = []
        self.stop, self.unreadable = stop, torch.tensor(unreadable)

    def __call__(self, pieces: list[Tensor]) -> Iterator[Made]:
        for rows in pieces:
            if len(self.pieces) == self.stop:
                raise KeyboardInterrupt
            self.pieces.append(int(rows[0]) // PIECE)
            rows = rows[~torch.isin(rows, self.unreadable)]
            yield rows, torch.stack([rows.float(), -rows.float()], 1)


def test_what_was_kept_is_not_looked_at_again(tmp_path: Path) -> None:
    looking = Looking()
    first = FeatureCache(tmp_path).features(KEY, COUNT, looking)
    again = FeatureCache(tmp_path).features(KEY, COUNT, looking)
    assert looking.pieces == [0, 1, 2]
    assert first[0].tolist() == list(range(COUNT))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(first, without(COUNT, Looking()), strict=True))


def test_interrupted_work_goes_on_where_it_was(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        FeatureCache(tmp_path).features(KEY, COUNT, Looking(stop=2))
    rest = Looking()
    _, seen = FeatureCache(tmp_path).features(KEY, COUNT, rest)
    assert rest.pieces == [2]
    assert seen[:, 0].tolist() == list(range(COUNT))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "other rows"])
def test_a_damaged_piece_is_recognised_and_made_again(damage: str, tmp_path: Path) -> None:
    store = FeatureCache(tmp_path)
    store.features(KEY, COUNT, Looking())
    path = tmp_path / KEY / "000001.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-5] ^= 1
    elif damage == "other rows":
        content = bytearray((tmp_path / KEY / "000000.safetensors").read_bytes())
    path.write_bytes(content[: {"cut": len(content) // 2, "empty": 0}.get(damage, len(content))])
    mending = Looking()
    _, seen = store.features(KEY, COUNT, mending)
    assert mending.pieces == [1]
    assert seen[:, 0].tolist() == list(range(COUNT))
    store.features(KEY, COUNT, Looking(stop=0))  # it is whole again


def test_rows_that_could_not_be_looked_at_are_left_out(tmp_path: Path) -> None:
    for _ in range(2):
        rows, seen = FeatureCache(tmp_path).features(KEY, COUNT, Looking(unreadable=(0, 1500)))
        assert rows.tolist() == [row for row in range(COUNT) if row not in (0, 1500)]
        assert len(seen) == len(rows)


def test_rows_that_have_become_readable_are_looked_at(tmp_path: Path) -> None:
    FeatureCache(tmp_path).features(KEY, COUNT, Looking(unreadable=(0, 1500, 1501)))
    asked: list[list[int]] = []

    def readable(rows: Tensor) -> Tensor:
        asked.append(rows.tolist())
        return rows[rows != 1501]

    mending = Looking()
    rows, seen = FeatureCache(tmp_path).features(KEY, COUNT, mending, readable)
    assert asked == [[0, 1500, 1501]]
    assert mending.pieces == [0]  # both rows at once
    assert rows.tolist() == seen[:, 0].tolist() == [row for row in range(COUNT) if row != 1501]
    again, _ = FeatureCache(tmp_path).features(KEY, COUNT, mending, lambda rows: rows[:0])  # they are kept
    assert torch.equal(again, rows)
    assert mending.pieces == [0]


def test_a_folder_that_is_only_to_be_read_from_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = Looking()
    FeatureCache(tmp_path).features(KEY, COUNT, looking)

    def refused(*_: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(os, "utime", refused)
    assert len(FeatureCache(tmp_path).features(KEY, COUNT, looking)[0]) == COUNT
    assert looking.pieces == [0, 1, 2]


def test_trainings_that_were_interrupted_count_and_go_too(tmp_path: Path) -> None:
    old, mine = tmp_path / f"{OTHER}.halfway", tmp_path / "notes.halfway"
    for file in (old, mine):
        file.write_bytes(b"x" * 1000)
        os.utime(file, (1, 1))
    FeatureCache(tmp_path).features(KEY, COUNT, Looking())
    assert old.exists()
    size = sum(file.stat().st_size for file in (tmp_path / KEY).iterdir())
    FeatureCache(tmp_path, limit=size + 500).trim(KEY)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([KEY, mine.name])


def test_what_was_not_used_for_longest_goes_when_there_is_too_much(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path)
    store.features(KEY, COUNT, Looking())
    size = sum(file.stat().st_size for file in (tmp_path / KEY).iterdir())
    os.utime(tmp_path / KEY, (1, 1))
    store.features(OTHER, COUNT, Looking())
    os.utime(tmp_path / OTHER, (2, 2))
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "only copy.txt").write_text("x" * size)
    FeatureCache(tmp_path, limit=2 * size + 100).features("c" * 32, COUNT, Looking())
    assert sorted(home.name for home in tmp_path.iterdir()) == [OTHER, "c" * 32, "thesis"]
    FeatureCache(tmp_path, limit=1).features("d" * 32, COUNT, Looking())
    assert sorted(home.name for home in tmp_path.iterdir()) == ["d" * 32, "thesis"]  # what is needed now stays


def test_what_is_read_counts_as_used(tmp_path: Path) -> None:
    store = FeatureCache(tmp_path)
    for key in (KEY, OTHER):
        store.features(key, COUNT, Looking())
        os.utime(tmp_path / key, (1, 1))
    store.features(KEY, COUNT, Looking())
    assert (tmp_path / KEY).stat().st_mtime > 1 == (tmp_path / OTHER).stat().st_mtime


def test_a_folder_that_cannot_be_written_to_costs_a_warning_and_not_the_evaluation(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="features are not kept: .* cannot be written to") as told:
        _, seen = FeatureCache(tmp_path / "file").features(KEY, COUNT, Looking())
    assert len(seen) == COUNT
    assert len(told) == 1


def test_the_folder_is_that_of_the_environment_or_in_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANYVIEW_CACHE", str(tmp_path))
    assert FeatureCache().folder == tmp_path
    monkeypatch.delenv("MANYVIEW_CACHE")
    assert default_folder() == Path.home() / ".cache" / "manyview" / "features"
