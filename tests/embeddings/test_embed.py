"""Embedding a data set: every image, in any number of sittings, by one process at a time."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from manyview import __version__, encoders
from manyview.core.atomic import DiskFull
from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.data import Folder, TorchDataset
from manyview.embeddings import Embeddings, embed
from manyview.embeddings.about import About
from manyview.embeddings.embed import BATCHES, PartialEmbeddings, target
from manyview.embeddings.file_format import read
from manyview.embeddings.image_source import ImageReader, ImageSource, open_images
from manyview.encoders import Encoder
from manyview.features.embedding_pass import features
from manyview.features.feature_cache import Piece
from manyview.features.preprocess import Preprocess
from tests.tiny import pictures

IMAGES = 50


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return pictures(tmp_path / "data", IMAGES, classes=2)


def embedded(encoder: Encoder, data: Any, to: Path, **options: Any) -> Embeddings:
    return embed(encoder, data, to, **{"batch_size": 2, "workers": 0, "device": "cpu", **options})


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Makes it stop after so many pieces; gives the numbers of those that were saved."""
    saved: list[int] = []
    save = PartialEmbeddings.save

    def once_more(self: PartialEmbeddings, number: int, *rest: Any) -> None:
        if len(saved) == after:
            raise KeyboardInterrupt
        save(self, number, *rest)
        saved.append(number)

    monkeypatch.setattr(PartialEmbeddings, "save", once_more)
    return saved


def test_embeddings_are_those_that_evaluation_computes(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    folder = Folder(data)
    found = embedded(encoder, data, tmp_path / "e.npz", batch_size=256)
    vectors, labels = features(encoder, folder, workers=0)
    assert torch.equal(found.vectors, vectors)
    assert torch.equal(found.labels, labels)
    assert torch.equal(found.ids, folder.ids)
    assert found.names == [folder.name(row) for row in range(IMAGES)]
    assert found.file(3) == folder.path(3)
    assert found.about.classes == ("class0", "class1")


def test_pictures_of_all_sizes_are_seen_as_preprocess_sees_them(encoder: Encoder, tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", 6, sides=(20, 200, 32))
    found = embedded(encoder, data, tmp_path / "e.npz")
    preprocess = Preprocess(32)
    with torch.no_grad():
        alone = torch.cat([encoder(preprocess(str(found.file(row)))) for row in range(6)])
    assert torch.allclose(found.vectors, alone, atol=1e-5)


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_what_was_stopped_goes_on_and_ends_with_the_same_bytes(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    at_once, stopped = tmp_path / f"at_once.{ending}", tmp_path / f"stopped.{ending}"
    embedded(encoder, data, at_once)
    with monkeypatch.context() as patch:
        first = stopping(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            embedded(encoder, data, stopped)
    assert first == [0, 1]
    assert not stopped.exists()
    (tmp_path / f"stopped.{ending}.part" / ".000002.npz.999999.part").write_bytes(b"half a piece")
    with monkeypatch.context() as patch:
        rest = stopping(patch, after=99)
        embedded(encoder, data, stopped)
    assert rest == [2, 3]
    assert stopped.read_bytes() == at_once.read_bytes()
    assert not (tmp_path / f"stopped.{ending}.part").exists()


def test_several_processes_read_the_same(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    embedded(encoder, data, tmp_path / "none.npz")
    embedded(encoder, data, tmp_path / "two.npz", workers=2)
    assert (tmp_path / "none.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def other_images(data: Path) -> None:
    Image.new("RGB", (32, 32)).save(data / "class0" / "one_more.png")


def other_pixels(data: Path) -> None:
    for file in data.rglob("*.png"):
        Image.new("RGB", (32, 32)).save(file)


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (None, {"dtype": "float16"}, "dtype float32, not float16"),
        (None, {"batch_size": 3}, "batch_size 2, not 3"),
        (other_images, {}, "other images, or of files that were written anew since"),
        (other_pixels, {}, "other images, or of files that were written anew since"),
    ],
)
def test_going_on_with_something_else_is_refused(
    encoder: Encoder,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None] | None,
    options: dict[str, Any],
    said: str,
) -> None:
    with monkeypatch.context() as patch:
        stopping(patch, after=1)
        with pytest.raises(KeyboardInterrupt):
            embedded(encoder, data, tmp_path / "e.npz")
    if change is not None:
        change(data)
    with pytest.raises(ValueError, match=rf"e\.npz\.part is of {said}; delete that folder to start anew$"):
        embedded(encoder, data, tmp_path / "e.npz", **options)


def test_a_complete_file_is_left_alone(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.npz"
    embedded(encoder, data, path)
    before = path.stat().st_mtime_ns
    with monkeypatch.context() as patch:
        patch.setattr(ImageReader, "__getitem__", lambda *_: pytest.fail("nothing is to be read"))
        assert len(embedded(encoder, data, path)) == IMAGES
    torch.manual_seed(1)
    other = encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1])
    with pytest.raises(ValueError, match=r"e\.npz is of another encoder, patchnet; delete it, or give another --to"):
        embedded(other, data, path)
    assert path.stat().st_mtime_ns == before
    assert not (tmp_path / "e.npz.part").exists()


def test_a_file_of_somebody_else_is_not_overwritten(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.npz"
    path.write_text("my thesis")
    with pytest.raises(ValueError, match="none of ours"):
        embedded(encoder, data, path)
    assert path.read_text() == "my thesis"


def test_of_two_at_once_the_second_is_refused(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    with (
        locked(tmp_path / "e.npz.part"),
        pytest.raises(
            ValueError,
            match=r"e\.npz is being written by process \d+ on .*; wait for it, stop it, or give another --to",
        ),
    ):
        embedded(encoder, data, tmp_path / "e.npz")
    assert len(embedded(encoder, data, tmp_path / "e.npz")) == IMAGES


def test_a_damaged_piece_is_made_again(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded(encoder, data, tmp_path / "whole.npz")
    with monkeypatch.context() as patch:
        stopping(patch, after=2)
        with pytest.raises(KeyboardInterrupt):
            embedded(encoder, data, tmp_path / "e.npz")
    piece = tmp_path / "e.npz.part" / "000000.safetensors"
    piece.write_bytes(piece.read_bytes()[:100])
    with monkeypatch.context() as patch:
        made = stopping(patch, after=99)
        embedded(encoder, data, tmp_path / "e.npz")
    assert made == [0, 2, 3]
    assert (tmp_path / "e.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_broken_images_are_left_out_and_named(encoder: Encoder, tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", 4)
    for number in range(120):  # more in a row than a loader would bear
        (data / f"broken{number:03d}.png").write_bytes(b"no picture")
    found = embedded(encoder, data, tmp_path / "e.npz", batch_size=8)
    assert found.names == ["0.png", "1.png", "2.png", "3.png"]
    assert len(found.about.broken) == 120
    assert found.about.broken["broken007.png"].startswith("not an image")


def test_data_without_a_readable_image_is_one_line(encoder: Encoder, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "torn.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"data: none of the 1 images can be read, from torn\.png: the file is empty"):
        embedded(encoder, tmp_path / "data", tmp_path / "e.npz")


def test_names_of_any_bytes_survive(encoder: Encoder, tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", 1)
    odd = os.fsdecode(b"odd\xff\n\x1b[31m.png")
    os.rename(data / "0.png", os.path.join(data, odd))
    found = embedded(encoder, data, tmp_path / "e.parquet")
    assert found.names == [r"odd\xff\n\x1b[31m.png"]
    assert os.path.isfile(found.file(0) or "")


def names_and_labels(found: Embeddings) -> list[tuple[str, str]]:
    return [(found.name(row), found.label(row)) for row in range(len(found))]


def test_all_splits_of_a_folder_are_embedded_with_their_classes(encoder: Encoder, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for split in ("train", "test"):
        pictures(data / split, 2, classes=2)
    pictures(data / "elsewhere", 1)
    assert names_and_labels(embedded(encoder, data, tmp_path / "all.npz")) == [
        ("elsewhere/0.png", ""),
        ("test/class0/0.png", "class0"),
        ("test/class1/1.png", "class1"),
        ("train/class0/0.png", "class0"),
        ("train/class1/1.png", "class1"),
    ]
    test = embedded(encoder, data, tmp_path / "test.npz", split="test")
    assert names_and_labels(test) == [("test/class0/0.png", "class0"), ("test/class1/1.png", "class1")]
    assert os.path.isfile(test.file(0) or "")


def test_splits_are_no_classes(encoder: Encoder, tmp_path: Path) -> None:
    for split in ("train", "test"):
        pictures(tmp_path / "data" / split, 2)
    assert embedded(encoder, tmp_path / "data", tmp_path / "e.npz").about.classes == ()


def test_of_several_views_the_first_is_embedded_and_samples_without_it_are_not(
    encoder: Encoder, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    pictures(data / "rgb", 3)
    pictures(data / "depth", 4, mode="L")
    found = embedded(encoder, data, tmp_path / "e.npz")
    assert found.names == ["rgb/0.png", "rgb/1.png", "rgb/2.png"]
    assert found.about.view == "rgb"
    for split in ("train", "test"):
        os.renames(data / "rgb", data / split / "rgb") if split == "train" else pictures(data / split / "rgb", 1)
    os.rename(data / "depth", data / "train" / "depth")
    found = embedded(encoder, data, tmp_path / "f.npz")  # all splits of the first view
    assert found.names == ["train/rgb/0.png", "train/rgb/1.png", "train/rgb/2.png", "test/rgb/0.png"]
    assert found.described == f"4 images of all splits (train, test) of {data}"


def test_data_of_ones_own_has_numbers_for_names(encoder: Encoder, tmp_path: Path) -> None:
    images = torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8)
    found = embedded(encoder, TorchDataset(TensorDataset(images, torch.arange(5))), tmp_path / "e.npz")
    assert found.names == ["0", "1", "2", "3", "4"]
    assert found.file(0) is None
    assert found.labels.tolist() == [0, 1, 2, 3, 4]


def test_ones_encoder_stays_as_it_is(data: Path, tmp_path: Path) -> None:
    mine = encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1]).train()
    before = {name: value.clone() for name, value in mine.state_dict().items()}
    embedded(mine, data, tmp_path / "e.npz")
    assert all(part.training for part in mine.modules())
    assert all(torch.equal(value, before[name]) for name, value in mine.state_dict().items())


def test_an_encoder_that_has_diverged_is_refused(data: Path, tmp_path: Path) -> None:
    lost = encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1])
    with torch.no_grad():
        next(lost.parameters()).fill_(torch.nan)
    with pytest.raises(ValueError, match="has diverged"):
        embedded(lost, data, tmp_path / "e.npz")


def test_a_number_that_float16_cannot_hold_is_refused(data: Path, tmp_path: Path) -> None:
    large = encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1])
    with torch.no_grad():
        for part in large.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.bias.fill_(1e6)
    with pytest.raises(ValueError, match="dtype: float16 cannot hold"):
        embedded(large, data, tmp_path / "e.npz", dtype="float16")


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


def test_an_image_that_was_replaced_in_place_is_noticed(encoder: Encoder, tmp_path: Path) -> None:
    data, to = pictures(tmp_path / "data", 60), tmp_path / "e.npz"
    embedded(encoder, data, to)
    pictures(tmp_path / "other", 1, sides=(24,))
    (tmp_path / "other" / "0.png").rename(data / "31.png")
    with pytest.raises(UserError, match=r"e\.npz is of other images, or of files .*; delete it, or give another --to"):
        embedded(encoder, data, to)
