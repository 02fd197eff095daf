"""A full disk, said in one line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from manyview.core.disk import DiskFull, naming_full_disk


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
