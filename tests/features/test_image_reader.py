"""Images read in order, by any number of processes; what cannot be read is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.data import Folder, Scenes
from manyview.features.embedding_pass import ImageBatch
from manyview.features.image_reader import ImageReader, read_images
from manyview.features.preprocess import Preprocess
from manyview.views import AUGMENTATIONS
from tests.tiny import pictures


def reader(folder: Path) -> ImageReader:
    return ImageReader(Folder(folder), AUGMENTATIONS["probe-test"](32))


def read(folder: Path, workers: int) -> list[ImageBatch]:
    batches = torch.arange(len(Folder(folder))).split(2)
    return list(read_images(reader(folder), batches, workers))


def test_each_picture_is_as_preprocessing_makes_it_whatever_its_size(tmp_path: Path) -> None:
    folder = pictures(tmp_path, 6, sides=(20, 200, 32))
    images = torch.cat([batch.images for batch in read(folder, 0)])
    assert torch.equal(images, Preprocess(32)([Folder(folder).path(row) for row in range(6)]))


def test_several_processes_read_the_same_in_the_same_order(tmp_path: Path) -> None:
    folder = pictures(tmp_path, 5)
    for one, other in zip(read(folder, 0), read(folder, 2), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert torch.equal(one.images, other.images)


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    folder = pictures(tmp_path, 3)
    (folder / "1.png").write_bytes(b"")
    first, second = read(folder, 0)
    assert (first.count, first.rows.tolist(), len(first.images)) == (2, [0], 1)
    assert first.unreadable == {1: "the file is empty"}
    assert (second.rows.tolist(), second.unreadable) == ([2], {})


def test_a_batch_of_nothing_readable_is_empty(tmp_path: Path) -> None:
    (tmp_path / "torn.png").write_bytes(b"")
    (batch,) = read(tmp_path, 0)
    assert (batch.count, len(batch.rows), len(batch.images)) == (1, 0, 0)


@pytest.mark.parametrize("rows", [[0, 1, 2], [7]])
def test_data_that_makes_many_samples_at_once_is_asked_at_once(rows: list[int]) -> None:
    scenes = Scenes(10, size=16)
    pipeline = AUGMENTATIONS["probe-test"](16)
    batch = ImageReader(scenes, pipeline)[torch.tensor(rows)]
    assert torch.equal(batch.images, Preprocess(16)([scenes[row].modalities["image"] for row in rows]))
