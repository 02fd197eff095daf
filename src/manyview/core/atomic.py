"""Files that appear whole or not at all, and one line that says why where a file cannot be written."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from manyview.core.errors import UserError
from manyview.core.text import printable

FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your quota is used up",
    errno.EFBIG: "files may not grow that large here (ulimit -f)",
}
BEGINNING = 1 << 16  # bytes of a file, in which it says who wrote it
DRAFT = re.compile(r"\..+\.(\d+)\.part", re.DOTALL)


class DiskFull(UserError):
    """There was no room for a file. What was there before is untouched."""

    exit_code = 1  # nothing was wrong with what was given


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


def check_writable(setting: str, folder: Path, path: str | os.PathLike[str]) -> None:
    """Refuses, before the work is done, a folder that can neither be written to nor be made; `path` goes into it."""
    existing = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not existing.is_dir():
        raise _unwritable(setting, path, f"{printable(str(existing))} is no folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise _unwritable(setting, path, f"{printable(str(existing))} is read-only")


def check_own(setting: str, path: Path, is_ours: Callable[[bytes], bool]) -> None:
    """Refuses a place where there is something that manyview did not write; `is_ours` is given a file's beginning.

    An empty file is nobody's. A link is not followed: it is somebody's own, as are folders, pipes and devices.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO):
            raise _unwritable(setting, path, str(error.strerror)) from None
        ours = False
    else:
        try:
            beginning = os.read(handle, BEGINNING) if stat.S_ISREG(os.fstat(handle).st_mode) else None
        finally:
            os.close(handle)
        ours = beginning is not None and (not beginning or is_ours(beginning))
    if not ours:
        raise UserError(
            setting, f"{printable(str(path))} is there already, and manyview did not write it; give another"
        )


def _unwritable(setting: str, path: str | os.PathLike[str], why: str) -> UserError:
    return UserError(setting, f"{printable(os.fspath(path))} cannot be written to: {why}; give another")


def _no_room(error: BaseException | None) -> int | None:
    """The number of a full disk among an error and those that led to it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


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
