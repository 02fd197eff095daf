"""Embedding a data set: every image, in any number of sittings, by one process at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from manyview import encoders
from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.data import Folder, TorchDataset
from manyview.embeddings import Embeddings, embed
from manyview.embeddings.embed import fine_map, last_map
from manyview.embeddings.image_source import ImageReader
from manyview.embeddings.partial_embeddings import PartialEmbeddings
from manyview.embeddings.search import search
from manyview.encoders import Encoder
from manyview.features.embedding_pass import features
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


def test_an_image_that_was_replaced_in_place_is_noticed(encoder: Encoder, tmp_path: Path) -> None:
    data, to = pictures(tmp_path / "data", 60), tmp_path / "e.npz"
    embedded(encoder, data, to)
    pictures(tmp_path / "other", 1, sides=(24,))
    (tmp_path / "other" / "0.png").rename(data / "31.png")
    with pytest.raises(UserError, match=r"e\.npz is of other images, or of files .*; delete it, or give another --to"):
        embedded(encoder, data, to)


def test_patches_are_the_vectors_of_the_last_map_place_by_place(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    found = embedded(encoder, data, tmp_path / "e.npz", patches=True)
    with torch.no_grad():
        seen = Preprocess(32)([found.file(row) or "" for row in range(3)])
        last = list(encoder.eval().layers(seen).values())[-1]  # (3, C, rows, columns)
    assert found.patches.shape == (IMAGES, *last.shape[2:], last.shape[1])
    assert torch.allclose(found.patches[:3], last.permute(0, 2, 3, 1), atol=1e-5)
    assert torch.allclose(found.patches[2, 1, 0], last[2, :, 1, 0], atol=1e-5)


def test_patches_that_were_stopped_go_on_and_are_not_taken_for_embeddings(
    encoder: Encoder, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = embedded(encoder, data, tmp_path / "whole.npz", patches=True)
    with monkeypatch.context() as patched:
        stopping(patched, 1)
        with pytest.raises(KeyboardInterrupt):
            embedded(encoder, data, tmp_path / "e.npz", patches=True)
    with pytest.raises(UserError, match="is of grid"):
        embedded(encoder, data, tmp_path / "e.npz")
    assert torch.equal(embedded(encoder, data, tmp_path / "e.npz", patches=True).vectors, whole.vectors)
    with pytest.raises(UserError, match="hold a vector a place"):
        search(encoder, whole.file(0) or "", whole)
    with pytest.raises(UserError, match="one vector an image"):
        _ = embedded(encoder, data, tmp_path / "plain.npz").patches


def test_a_network_without_maps_has_no_patches(encoder: Encoder) -> None:
    encoder.layer_shapes = lambda: {"fc": (16,)}  # type: ignore[method-assign]
    with pytest.raises(UserError, match="has no feature maps"):
        last_map(encoder)


def test_a_fine_map_has_seven_rows_where_there_is_one() -> None:
    assert fine_map(encoders.create("patchnet", size=64, widths=(8, 8, 8, 8))) == "stage3"
    assert fine_map(encoders.create("patchnet", size=8, widths=(8, 8), blocks=(1, 1))) == "stem"
