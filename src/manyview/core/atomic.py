"""A file appears whole or not at all, whatever stops the process that writes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DRAFT = re.compile(r"\..+\.(\d+)\.part", re.DOTALL)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """A place in the same folder to write the file to. It takes its name when all is on the disk; else it is removed.

    >>> with whole("numbers.txt") as draft:
    ...     draft.write_text("1 2 3")
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        _sync(draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    with suppress(OSError):  # some network file systems cannot sync a folder
        _sync(path.parent)


def tidy(folder: str | Path) -> list[Path]:
    """Removes the drafts that killed processes have left in a folder, and says which they were.

    A draft of another process that lives on this machine stays. Processes of other machines are not seen, so call it
    where only you write: in a folder that is locked.
    """
    left = [file for file in Path(folder).iterdir() if _abandoned(file.name)]
    for file in left:
        file.unlink(missing_ok=True)
    return left


def _abandoned(name: str) -> bool:
    match = DRAFT.fullmatch(name)
    if match is None:
        return False
    process = int(match[1])
    return process == os.getpid() or not _lives(process)  # in a container the next process often has the same number


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


def _sync(path: Path) -> None:
    """Down to the disk, so that a power cut leaves the old file or the new one."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
