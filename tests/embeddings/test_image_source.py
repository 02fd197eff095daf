"""Which images are embedded: their labels, their files, and their fingerprint."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data import Folder, Scenes, TorchDataset, subset
from manyview.data import reader as worker
from manyview.embeddings.image_source import ImageReader, narrowed, open_images, read_images
from manyview.features.embedding_pass import ImageBatch
from manyview.features.preprocess import Preprocess
from manyview.views import AUGMENTATIONS
from tests.patience import PATIENCE
from tests.tiny import pictures


def test_files_are_named_relative_to_their_folder(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "data", 4, classes=2)
    found = open_images(folder)
    assert found.root == str(folder)
    assert found.path(0) == b"class0/0.png"
    assert (found.labels.tolist(), found.classes) == ([0, 0, 1, 1], ("class0", "class1"))


def test_a_part_of_a_folder_keeps_its_files(tmp_path: Path) -> None:
    folder = Folder(pictures(tmp_path / "data", 8, classes=2))
    found = open_images(subset(folder, [7, 3]))
    assert found.root is not None
    paths = [os.path.join(found.root, os.fsdecode(found.path(row))) for row in range(2)]
    assert paths == [folder.path(row) for row in (7, 3)]


def test_what_is_no_file_goes_by_its_name(tmp_path: Path) -> None:
    images = torch.zeros(3, 3, 8, 8, dtype=torch.uint8)
    found = open_images(TorchDataset(TensorDataset(images, torch.arange(3))))
    assert (found.root, found.path(2)) == (None, b"2")


def test_narrowed_leaves_out_samples_that_lack_it(tmp_path: Path) -> None:
    pictures(tmp_path / "data" / "rgb", 3)
    pictures(tmp_path / "data" / "depth", 4, mode="L")
    found = open_images(tmp_path / "data")
    assert len(narrowed(found, "depth").dataset) == 4
    rgb = narrowed(found, "rgb")
    assert (len(rgb.dataset), len(rgb.labels)) == (3, 3)
    assert [os.path.basename(os.fsdecode(rgb.path(row))) for row in range(3)] == ["0.png", "1.png", "2.png"]
    with pytest.raises(UserError, match=r"^view: the data has no 'sonar'; it has rgb, depth"):
        narrowed(found, "sonar")


def test_the_fingerprint_tells_images_labels_and_pixels_apart(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "data", 6, classes=2)
    before = open_images(folder).fingerprint
    assert before == open_images(folder).fingerprint
    assert before != open_images(folder, labels=False).fingerprint
    assert before != open_images(subset(Folder(folder), range(5))).fingerprint
    Image.new("RGB", (32, 32)).save(folder / "class0" / "0.png")
    assert before != open_images(folder).fingerprint
    assert open_images(Scenes(4, size=16)).fingerprint.startswith("4-")


def reader(folder: Path) -> ImageReader:
    return ImageReader(Folder(folder), AUGMENTATIONS["probe-test"](32))


def read(folder: Path, count: int) -> list[ImageBatch]:
    batches = torch.arange(len(Folder(folder))).split(2)
    return list(read_images(reader(folder), batches, count))


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


class Endless(Folder):
    """Has an image that no worker comes back from before the images are given up, and one after it."""

    begun: Event

    def __getitem__(self, index: int) -> Sample:
        if torch.utils.data.get_worker_info() is not None and index == 1:
            self.begun.set()
            while not worker._over.value:
                time.sleep(0.01)
        if torch.utils.data.get_worker_info() is not None and index == 2:
            time.sleep(PATIENCE)  # it would be waited for, for 5 seconds, and then be killed
        return super().__getitem__(index)


def test_workers_end_in_the_middle_of_a_batch_when_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", PATIENCE)
    data = Endless(pictures(tmp_path, 3))
    data.begun = multiprocessing.Event()
    batches = [torch.tensor([0]), torch.tensor([1, 2])]
    before = multiprocessing.active_children()
    images = read_images(ImageReader(data, AUGMENTATIONS["probe-test"](32)), batches, 1)
    assert next(images).rows.tolist() == [0]
    (worker,) = set(multiprocessing.active_children()) - set(before)
    assert data.begun.wait(PATIENCE)
    images.close()
    worker.join()
    assert worker.exitcode == 0


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
