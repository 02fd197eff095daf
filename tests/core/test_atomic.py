from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from manyview.core.atomic import (
    DiskFull,
    atomic_write,
    check_own,
    check_writable,
    expanded,
    naming_full_disk,
    naming_setting,
    remove_drafts,
)
from manyview.core.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_file_takes_its_name_at_the_end_only(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("older")
    with atomic_write(path) as draft:
        draft.write_text("newer")
        assert draft.parent == tmp_path
        assert path.read_text() == "older"
    assert path.read_text() == "newer"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_older_file_and_no_draft(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("older")
    with pytest.raises(error), atomic_write(path) as draft:  # noqa: PT012
        draft.write_text("half")
        raise error
    assert path.read_text() == "older"
    assert names(tmp_path) == ["a.txt"]


def test_draft_and_folder_are_brought_to_the_disk_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def watched_replace(draft: Path, path: Path) -> None:
        seen.append("replace")
        replace(draft, path)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    with atomic_write(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert seen == [str(draft.resolve()), "replace", str(tmp_path.resolve())]


def test_a_folder_that_cannot_be_synced_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{handle}")).is_dir():
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(tmp_path / "a.txt") as draft:
        draft.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_a_killed_process_leaves_a_draft_that_is_removed_later(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from manyview.core.atomic import atomic_write\n"
        "with atomic_write(sys.argv[1]) as draft:\n"
        "    draft.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "a.txt"], timeout=60)
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    assert left[0].name.startswith(".a.txt.")
    assert remove_drafts(tmp_path) == left
    assert names(tmp_path) == []


def test_removing_drafts_leaves_drafts_that_are_written_to_and_all_other_files(tmp_path: Path) -> None:
    others = ["a.pt.0123456789abcdef.part", ".a.pt.99.part", ".hidden", ".a.part", "a.pt"]
    for name in [*others, ".a.pt.0123456789abcdef.part", ".b\n.pt.fedcba9876543210.part"]:
        (tmp_path / name).write_text("")
    (tmp_path / ".link.0123456789abcdef.part").symlink_to("a.pt")
    with atomic_write(tmp_path / "living") as draft:
        remove_drafts(tmp_path)
        assert names(tmp_path) == sorted([*others, ".link.0123456789abcdef.part", draft.name])


def test_processes_of_the_same_number_do_not_write_to_one_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of two containers, whose first process is number 1 in each."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    path = tmp_path / "a.txt"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    assert names(tmp_path) == ["a.txt"]


def test_a_link_in_the_place_of_a_draft_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda count: "0" * 16)
    (tmp_path / ".a.txt.0000000000000000.part").symlink_to("precious")
    with pytest.raises(FileExistsError), atomic_write(tmp_path / "a.txt") as draft:
        draft.write_text("theirs")
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_keeps_its_mode_and_its_draft_is_no_more_open(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("older")
    path.chmod(mode)
    with atomic_write(path) as draft:
        assert draft.stat().st_mode & 0o777 == 0o600
        draft.write_text("newer")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("newer", mode)


def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    with atomic_write(tmp_path / "a.txt") as draft:
        draft.write_text("")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("name", ["n" * 250, "ü" * 125, "n" * 255])
def test_a_name_may_be_as_long_as_the_file_system_allows(name: str, tmp_path: Path) -> None:
    with atomic_write(tmp_path / name) as draft:
        draft.write_text("new")
    assert names(tmp_path) == [name]


def test_a_path_that_cannot_be_written_is_named_by_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "report.html"
    refused = pytest.raises(UserError, match=r"^out: .*html cannot be written to: Not a directory; give another$")
    with refused, naming_setting("out", inside), atomic_write(inside) as draft:
        draft.write_text("")
    with pytest.raises(UserError, match=r"^out: .*report\.html cannot be written to: .*file is no folder"):
        check_writable("out", inside.parent, inside)


def test_a_line_of_ours_is_not_wrapped_again(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^the disk is full$"), naming_setting("out", tmp_path):
        raise OSError("the disk is full")


def test_a_folder_that_can_be_made_is_writable(tmp_path: Path) -> None:
    check_writable("out", tmp_path / "new" / "newer", tmp_path / "new" / "newer" / "a.txt")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("number", "why"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "your quota"), (errno.EFBIG, "ulimit")]
)
def test_it_says_which_file_why_how_much_is_free_and_what_to_do(number: int, why: str, tmp_path: Path) -> None:
    with (
        pytest.raises(DiskFull, match=rf"/x\.pt cannot be written: .*{why}.*, [\d,.]+ MB are free; delete something$"),
        naming_full_disk(tmp_path / "x.pt", lambda: "delete something"),
    ):
        raise OSError(number, "no room")


def test_a_full_disk_is_found_behind_the_error_of_a_library(tmp_path: Path) -> None:
    def write() -> None:
        try:
            raise OSError(errno.ENOSPC, "no room")
        except OSError as error:
            raise RuntimeError("the writer failed") from error

    with pytest.raises(DiskFull), naming_full_disk(tmp_path, lambda: "delete something"):
        write()


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), naming_full_disk(tmp_path, lambda: "delete something"):
        raise PermissionError(errno.EACCES, "not yours")


def test_only_what_is_known_as_ours_and_an_empty_file_may_be_written_over(tmp_path: Path) -> None:
    ours, mine, empty = (tmp_path / name for name in ("ours", "mine", "empty"))
    ours.write_text("manyview wrote it")
    mine.write_text("my notes")
    empty.touch()
    (tmp_path / "link").symlink_to(ours)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for path in (ours, empty, tmp_path / "nothing"):
        check_own("out", path, lambda beginning: beginning.startswith(b"manyview"))
    for path in (mine, tmp_path, *(tmp_path / name for name in ("link", "dangling", "pipe"))):
        with pytest.raises(UserError, match=f"^out: {path} is there already, and does not say that"):
            check_own("out", path, lambda beginning: beginning.startswith(b"manyview"))
    assert not (tmp_path / "nowhere").exists()


def test_a_home_folder_that_is_not_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("cache", "~/kept") == tmp_path / "kept"
    with pytest.raises(UserError, match=r"^root: ~nosuchuser/x: there is no such user; write ./~nosuchuser/x"):
        expanded("root", "~nosuchuser/x")
