"""Pieces of embeddings in their folder until the file is whole: in any number of sittings, by one process at a time."""

from __future__ import annotations

import errno
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from manyview import __version__
from manyview.core.atomic import DiskFull
from manyview.core.errors import UserError
from manyview.embeddings.about import About
from manyview.embeddings.embed import target
from manyview.embeddings.file_format import read
from manyview.embeddings.image_source import ImageSource, open_images
from manyview.embeddings.partial_embeddings import BATCHES, PartialEmbeddings
from manyview.features.feature_cache import Piece
from tests.tiny import pictures

ABOUT = About(
    encoder="mine", network="patchnet", weights="a" * 32, size=32, mean=(0.5,), std=(0.5,), view="image", data="data",
    options={}, root=None, classes=(), dtype="float32", batch_size=1, fingerprint="", version=__version__, broken={},
)  # fmt: skip


@pytest.fixture
def images(tmp_path: Path) -> ImageSource:
    """Twelve, which are two pieces of eight batches of one."""
    return open_images(pictures(tmp_path / "data", 12))


@pytest.fixture
def partial(tmp_path: Path, images: ImageSource) -> PartialEmbeddings:
    return PartialEmbeddings(tmp_path / "e.npz", ABOUT, images)


def piece(partial: PartialEmbeddings, number: int, **fields: object) -> Piece:
    rows = partial.store.rows(number)
    return replace(Piece(rows, rows[:, None].float()), **fields)  # type: ignore[arg-type]


def fill(partial: PartialEmbeddings) -> list[int]:
    missing = partial.missing()
    for number in missing:
        partial.save(number, piece(partial, number))
    return missing


def test_pieces_become_the_file_and_their_folder_goes(partial: PartialEmbeddings) -> None:
    with partial.alone():
        assert not partial.complete()
        assert fill(partial) == [0, 1]
        partial.join()
    found = read(partial.path)
    assert found.vectors[:, 0].tolist() == list(range(12))
    assert found.names == [partial.images.dataset.name(row) for row in range(12)]
    assert not partial.folder.exists()


def test_another_sitting_makes_what_is_missing_or_damaged(partial: PartialEmbeddings, images: ImageSource) -> None:
    with partial.alone():
        partial.complete()
        fill(partial)
    partial.store.path(1).write_bytes(b"torn")
    again = PartialEmbeddings(partial.path, ABOUT, images)
    with again.alone():
        assert not again.complete()
        assert fill(again) == [1]
        again.join()
    assert len(read(again.path)) == 12


def test_a_folder_without_a_plan_does_not_stay(partial: PartialEmbeddings) -> None:
    with pytest.raises(KeyboardInterrupt), partial.alone():
        raise KeyboardInterrupt
    assert not partial.folder.exists()


def test_what_is_there_must_be_of_the_same_encoder_and_images(partial: PartialEmbeddings, images: ImageSource) -> None:
    with partial.alone():
        partial.complete()
        other = PartialEmbeddings(partial.path, replace(ABOUT, weights="b" * 32), images)
        with pytest.raises(UserError, match=r"e\.npz\.part is of another encoder, mine; delete that folder"):
            other.complete()


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "null", "\0"])
def test_a_damaged_plan_is_one_line(partial: PartialEmbeddings, content: str) -> None:
    partial.folder.mkdir()
    (partial.folder / "about.json").write_text(content)
    with pytest.raises(UserError, match=r"about\.json is damaged: .*; delete its folder to start anew"):
        partial.complete()


def test_unreadable_images_are_named_in_the_file(partial: PartialEmbeddings) -> None:
    with partial.alone():
        partial.complete()
        partial.save(0, piece(partial, 0))
        partial.save(1, Piece(torch.tensor([9]), torch.ones(1, 1), {8: "torn", 10: "torn", 11: "torn"}))
        partial.join()
    found = read(partial.path)
    assert len(found) == 9
    assert found.about.broken == {partial.images.dataset.name(row): "torn" for row in (8, 10, 11)}


def test_a_full_disk_is_one_line_that_says_what_to_do(
    partial: PartialEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with (
        partial.alone(),
        pytest.raises(
            DiskFull, match=r"000000\.safetensors cannot be written: the disk is full, .* goes on from there"
        ),
    ):
        partial.save(0, piece(partial, 0))


def test_a_piece_is_some_batches(partial: PartialEmbeddings) -> None:
    assert partial.store.size == BATCHES * ABOUT.batch_size


@pytest.mark.parametrize("theirs", ["thesis.txt", "about.json", "000000.txt"])
def test_a_folder_of_somebody_else_is_refused_and_untouched(partial: PartialEmbeddings, theirs: str) -> None:
    partial.folder.mkdir()
    (partial.folder / theirs).write_text("mine")
    line = (
        rf"^to: .*e\.npz\.part is a folder of somebody's, with {re.escape(theirs)}; move it away, or give another --to$"
    )
    with pytest.raises(UserError, match=line), partial.alone():
        pytest.fail("it is not ours")
    assert [file.name for file in partial.folder.iterdir()] == [theirs]
    assert (partial.folder / theirs).read_text() == "mine"


def test_what_somebody_has_put_into_our_folder_stays(partial: PartialEmbeddings) -> None:
    with partial.alone():
        partial.complete()
        (partial.folder / "notes.txt").write_text("mine")
        fill(partial)
        partial.join()
    assert len(read(partial.path)) == 12
    assert [file.name for file in partial.folder.iterdir()] == ["notes.txt"]


def test_an_empty_folder_or_one_that_was_killed_at_once_is_ours(partial: PartialEmbeddings) -> None:
    partial.folder.mkdir()
    (partial.folder / "lock").write_text("")
    (partial.folder / ".about.json.123.part").write_text("{")
    with partial.alone():
        assert not partial.complete()
    assert partial.folder.exists()


def test_links_are_not_followed(partial: PartialEmbeddings, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    partial.folder.symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"e\.npz\.part is no folder of ours; move it away"), partial.alone():
        pytest.fail("it is a link")
    assert not list(elsewhere.iterdir())
    (tmp_path / "link.npz").symlink_to(tmp_path / "nothing.npz")
    with pytest.raises(UserError, match=r"link\.npz is a link to no file; remove it, or give another --to"):
        target(tmp_path / "link.npz")
