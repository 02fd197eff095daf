"""Files that appear whole or not at all, and one line that says why where a file cannot be written."""

import errno
import fcntl
import os
import re
import secrets
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
DRAFT = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.DOTALL)
NAMED = 40  # characters of a name that its draft repeats: a name has at most 255 bytes


class DiskFull(UserError):
    """There was no room for a file. What was there before is untouched."""

    exit_code = 1  # nothing was wrong with what was given


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Gives a draft in the same folder to write to; it takes the file's name once it is on the disk, or is removed.

    A draft is new and nobody else's, and the file keeps the mode that it had.

    >>> with atomic_write("numbers.txt") as draft:
    ...     draft.write_text("1 2 3")
    """
    path = Path(path)
    mode = _mode(path)
    draft = path.with_name(f".{path.name[:NAMED]}.{secrets.token_hex(8)}.part")
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    handle = os.open(draft, new, 0o666 if mode is None else 0o600)  # never more open than what it replaces
    try:
        _is_free(handle)  # and no more from here on, until this process closes it or ends
        yield draft
        _sync(draft, os.O_NOFOLLOW, mode)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
        os.close(handle)
    with suppress(OSError):  # some network file systems cannot sync a folder
        _sync(path.parent)


def remove_drafts(folder: str | Path) -> list[Path]:
    """Removes the drafts that killed processes have left in a folder, and gives their paths.

    A draft that is still written to stays. Where the file system has no locks that is not known, so call it where only
    you write: in a folder that is locked.
    """
    abandoned = [file for file in Path(folder).iterdir() if DRAFT.fullmatch(file.name) and _is_abandoned(file)]
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


def expanded(setting: str, path: str | os.PathLike[str]) -> Path:
    """A path with ~ as the home folder; refuses that of a user whom this machine does not know."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        name = printable(os.fspath(path))
        raise UserError(setting, f"{name}: there is no such user; write ./{name} for such a name") from None


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
        there = f"{printable(str(path))} is there already, and does not say that manyview wrote it"
        raise UserError(setting, f"{there}; move it away, or give another")


def _unwritable(setting: str, path: str | os.PathLike[str], why: str) -> UserError:
    return UserError(setting, f"{printable(os.fspath(path))} cannot be written to: {why}; give another")


def _no_room(error: BaseException | None) -> int | None:
    """The number of a full disk among an error and those that led to it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _mode(path: Path) -> int | None:
    """The permissions of a file that is there."""
    try:
        found = path.stat().st_mode
    except OSError:
        return None
    return stat.S_IMODE(found) & 0o777 if stat.S_ISREG(found) else None


def _is_abandoned(draft: Path) -> bool:
    try:
        handle = os.open(draft, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # it is somebody else's, or no file
        return False
    try:
        return _is_free(handle)
    finally:
        os.close(handle)


def _is_free(handle: int) -> bool:
    """Takes the lock of a file until its handle is closed; False where another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # there are no locks here
        return True
    return True


def _sync(path: Path, flags: int = 0, mode: int | None = None) -> None:
    """Brings a file or folder down to the disk, so that a power cut leaves the old file or the new one."""
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        if mode is not None:
            os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)
