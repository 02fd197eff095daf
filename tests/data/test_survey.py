"""The survey: what is counted, whatever the files are."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from manyview.data.check import open_splits
from manyview.data.folder import Folder
from manyview.data.survey import Survey, survey
from tests.data import fakes
from tests.data.awful import BROKEN, GOOD, IGNORED, make_awful, picture


def surveyed(path: Path, fast: bool = False) -> Survey:
    return survey(open_splits(str(path))[0], fast=fast, threads=2)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two splits; cat 2 is cat 1 again, and the test cat too."""
    for number, name in enumerate(("train/cat/1.png", "train/dog/1.png", "test/dog/1.png")):
        fakes.draw(tmp_path / name, seed=number)
    (tmp_path / "test/cat").mkdir()
    for copy in ("train/cat/2.png", "test/cat/1.png"):
        shutil.copy(tmp_path / "train/cat/1.png", tmp_path / copy)
    return tmp_path


def test_the_awful_folder_is_told_apart(tmp_path: Path) -> None:
    result = surveyed(make_awful(tmp_path))
    stray = result.samples - len(GOOD) - len(BROKEN)  # 1 where the file system takes such names
    assert stray in (0, 1)
    assert {name for name, _ in result.unreadable} == set(BROKEN)
    assert result.ignored == IGNORED
    assert result.widths[0] == 1
    assert result.widths[2] == 20000
    assert result.small == len(GOOD) + stray
    assert result.modes["CMYK"] == result.modes["palette+alpha"] == result.modes["16-bit RGB"] == 1
    assert result.formats["WEBP"] == 1
    assert sum(result.formats.values()) == len(GOOD) + stray


def test_headers_alone_miss_what_is_broken_inside(tmp_path: Path) -> None:
    make_awful(tmp_path)
    slow, fast = surveyed(tmp_path), surveyed(tmp_path, fast=True)
    assert {name for name, _ in slow.unreadable} - {name for name, _ in fast.unreadable} == {
        "truncated.jpg",
        "bad-data.png",
    }
    assert not fast.exact


def test_duplicates_are_found_within_and_across_splits(pets: Path) -> None:
    result = surveyed(pets)
    assert result.duplicates == [["train/cat/1.png", "train/cat/2.png", "test/cat/1.png"]]
    assert result.across_splits == 1
    assert result.splits == {"train": 3, "test": 2}
    assert result.labels == {"train": {"cat": 2, "dog": 1}, "test": {"cat": 1, "dog": 1}}


def test_any_number_of_threads_gives_the_same(tmp_path: Path) -> None:
    for number in range(150):
        picture(seed=number % 140).save(tmp_path / f"{number}.png")
    splits, _ = open_splits(str(tmp_path))
    assert survey(splits, threads=1) == survey(splits, threads=7)


def test_each_sample_is_told(pets: Path) -> None:
    done: list[bool] = []
    survey(open_splits(str(pets))[0], advance=lambda: done.append(True))
    assert len(done) == 5


def test_bytes_are_counted_on_disk_and_decoded(tmp_path: Path) -> None:
    picture(10, 20).save(tmp_path / "a.png")
    result = surveyed(tmp_path)
    assert result.stored == (tmp_path / "a.png").stat().st_size
    assert result.decoded == surveyed(tmp_path, fast=True).decoded == 600


def test_paired_modalities_are_counted_each(tmp_path: Path) -> None:
    for view, names, first in (("rgb", "abc", 0), ("depth", "ab", 1)):
        (tmp_path / view).mkdir()
        for number, name in enumerate(names, first):
            picture(seed=number).save(tmp_path / view / f"{name}.png")
    (tmp_path / "flow").mkdir()
    np.save(tmp_path / "flow" / "a.npy", np.zeros((4, 5, 2)))
    (tmp_path / "depth" / "b.png").write_bytes(b"")
    result = surveyed(tmp_path)
    assert result.modalities == {"rgb": 3, "depth": 2, "flow": 1}
    assert result.unreadable == [("b", "depth: the file is empty")]
    assert result.unreadable_share == pytest.approx(1 / 3)
    assert result.duplicates == []  # depth a has the bytes of rgb b, but only the reference is compared
    assert result.modes == {"rgb: RGB": 3, "depth: RGB": 1, "flow: 2 x float64": 1}


def test_a_damaged_image_of_a_named_set_is_listed(tmp_path: Path) -> None:
    fakes.eurosat(tmp_path)
    (tmp_path / "eurosat/2750/River/River_1.jpg").write_bytes(b"\xff\xd8\xff nothing")
    result = survey(open_splits("eurosat", root=str(tmp_path))[0])
    assert [name for name, _ in result.unreadable] == ["eurosat/all/1"]


def test_equal_images_of_an_array_are_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.trust_checksums(monkeypatch)
    fakes.cifar100(tmp_path)
    result = survey(open_splits("cifar100", root=str(tmp_path))[0])
    assert [len(group) for group in result.duplicates] == [4]


def test_pipes_and_devices_are_unreadable_and_hang_nothing(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.png")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe.png").symlink_to(tmp_path / "pipe")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for fast in (False, True):
        result = survey({"train": Folder(tmp_path)}, fast=fast)
        assert [name for name, _ in result.unreadable] == ["pipe.png", "zero.png"]
        assert all("not a regular file" in why for _, why in result.unreadable)


def test_a_sparse_file_is_never_held_as_a_whole(tmp_path: Path) -> None:
    picture().save(tmp_path / "a.tif")
    os.truncate(tmp_path / "a.tif", 200 << 20)
    tracemalloc.start()
    result = survey({"train": Folder(tmp_path)}, threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.unreadable == []
    assert result.stored == 200 << 20
    assert peak < 20 << 20


def test_too_many_pixels_are_unreadable_without_decoding(tmp_path: Path) -> None:
    picture(5, 4).save(tmp_path / "a.png")
    picture(6, 4).save(tmp_path / "b.png")
    for fast in (False, True):
        result = survey({"train": Folder(tmp_path, max_pixels=20)}, fast=fast)
        assert [name for name, _ in result.unreadable] == ["b.png"]
