"""Files that appear whole or not at all, and one line that names the setting where a file cannot be written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyview.core.errors import UserError
from manyview.core.text import printable

DRAFT = re.compile(r"\..+\.(\d+)\.part", re.DOTALL)


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Gives a draft in the same folder to write to; it takes the file's name once it is on the disk, or is removed.

    >>> with atomic_write("numbers.txt") as draft:
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


def remove_drafts(folder: str | Path) -> list[Path]:
    """Removes the drafts that killed processes have left in a folder, and gives their paths.

    A draft of another process that lives on this machine stays. Processes of other machines are not seen, so call it
    where only you write: in a folder that is locked.
    """
    abandoned = [file for file in Path(folder).iterdir() if _is_abandoned(file.name)]
    for file in abandoned:
        file.unlink(missing_ok=True)
    return abandoned


@contextmanager
def naming_setting(setting: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the system's error about writing into a `UserError` that names the setting and the path."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # it is a line of ours already
            raise
        raise _unwritable(setting, path, error.strerror) from error


def check_writable(setting: str, folder: Path, path: str | os.PathLike[str]) -> None:
    """Refuses, before the work is done, a folder that can neither be written to nor be made; `path` goes into it."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not existing.is_dir():
        raise _unwritable(setting, path, f"{printable(str(existing))} is no folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _unwritable(setting, path, f"{printable(str(existing))} is read-only")


def _unwritable(setting: str, path: str | os.PathLike[str], why: str) -> UserError:
    return UserError(setting, f"{printable(os.fspath(path))} cannot be written to: {why}; give another")


def _is_abandoned(name: str) -> bool:
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
    """Brings a file or folder down to the disk, so that a power cut leaves the old file or the new one."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
