"""A full disk, said in one line."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from manyview.core.errors import UserError

FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota is used up",
    errno.EFBIG: "files may not grow that large here (ulimit -f)",
}


class DiskFull(UserError):
    """There was no room for a file. What was there before is untouched."""

    exit_code = 1  # nothing was wrong with what was given


@contextmanager
def naming_full_disk(path: Path, remedy: Callable[[], str]) -> Iterator[None]:
    """Says in one line, as `DiskFull`, that a file or folder had no room, and what to do; other errors pass."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # torch and others hide the first behind the second
        cause = _no_room(error)
        if cause is None:
            raise
        free = shutil.disk_usage(path if path.is_dir() else path.parent).free / 2**20
        raise DiskFull(None, f"{path} cannot be written: {FULL[cause]}, {free:,.1f} MB are free; {remedy()}") from error


def _no_room(error: BaseException | None) -> int | None:
    """The number of a full disk among an error and those that led to it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return error.errno
        error = error.__cause__ or error.__context__
    return None
