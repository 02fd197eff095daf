"""Scanning: what is found, in which order, and what it costs to keep."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from manyview.data.files import Files, scan
from manyview.data.image import EXTENSIONS
from tests.data.awful import BROKEN, GOOD, HIDDEN, IGNORED, STRAY, make_awful


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_the_awful_folder_is_listed_completely(tmp_path: Path) -> None:
    found = scan(str(make_awful(tmp_path)), EXTENSIONS)
    assert set(found.files) - {STRAY} == {*GOOD, *BROKEN}
    assert found.ignored == IGNORED
    assert found.hidden == HIDDEN
    assert found.twice == 1
    assert found.closed == []


def test_paths_are_sorted_by_bytes_and_have_forward_slashes(tmp_path: Path) -> None:
    touch(tmp_path, "b/1.png", "B/1.png", "a/é.png", "a/z.png", "z.png")
    files = scan(str(tmp_path), EXTENSIONS).files
    assert list(files) == ["B/1.png", "a/z.png", "a/é.png", "b/1.png", "z.png"]
    assert [files[i] for i in range(len(files))] == list(files)
    assert files[-1] == "z.png"


def test_a_name_that_is_no_text_can_be_opened(tmp_path: Path) -> None:
    name = b"caf\xe9.png"
    try:
        os.close(os.open(os.path.join(os.fsencode(tmp_path), name), os.O_CREAT))
    except OSError:
        pytest.skip("the file system takes only UTF-8")
    files = scan(str(tmp_path), EXTENSIONS).files
    assert files.raw(0) == name
    assert os.path.exists(tmp_path / files[0])


def test_a_loop_of_links_ends_and_a_folder_goes_by_its_own_name(tmp_path: Path) -> None:
    touch(tmp_path, "real/1.png")
    (tmp_path / "a").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    assert list(scan(str(tmp_path), EXTENSIONS).files) == ["real/1.png"]


def test_links_to_files_elsewhere_count_once_each(tmp_path: Path) -> None:
    touch(tmp_path, "store/1.png", "store/2.png", "set/own.png")
    for link, target in (("b.png", "1.png"), ("a.png", "1.png"), ("c.png", "2.png")):
        (tmp_path / "set" / link).symlink_to(tmp_path / "store" / target)
    found = scan(str(tmp_path / "set"), EXTENSIONS)
    assert list(found.files) == ["a.png", "c.png", "own.png"]
    assert found.twice == 1


def test_a_linked_folder_from_elsewhere_is_followed(tmp_path: Path) -> None:
    touch(tmp_path, "store/cat/1.png")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "cats").symlink_to(tmp_path / "store" / "cat")
    assert list(scan(str(tmp_path / "set"), EXTENSIONS).files) == ["cats/1.png"]


def test_a_pipe_is_no_image(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "waits-for-ever.png")
    found = scan(str(tmp_path), EXTENSIONS)
    assert len(found.files) == 0
    assert found.ignored == {".png": 1}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_closed_folder_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "open/1.png", "shut/2.png")
    (tmp_path / "shut").chmod(0)
    try:
        found = scan(str(tmp_path), EXTENSIONS)
    finally:
        (tmp_path / "shut").chmod(0o755)
    assert list(found.files) == ["open/1.png"]
    assert found.closed == ["shut/"]


def test_many_files_are_kept_in_a_few_bytes_each() -> None:
    files = Files(f"class{i % 100:03}/image{i:07}.jpg".encode() for i in range(100_000))
    assert len(pickle.dumps(files)) < 40 * 100_000
    assert sum(len(name) for name in files) == 25 * 100_000


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_outside_is_refused(index: int) -> None:
    with pytest.raises(IndexError, match="less than 2 files"):
        Files([b"a", b"b"])[index]
