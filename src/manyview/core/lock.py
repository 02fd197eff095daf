"""A folder that one process at a time works in."""

import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyview.core.errors import UserError
from manyview.core.text import printable

NAME = "lock"
OWNER = re.compile(rb"\d+ [^\s/]+")  # process and host: what is in a lock of ours
POLL = 0.02  # seconds between two looks at a lock that is waited for
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
_held: set[int] = set()


class InUse(UserError):
    """Another process works in this folder."""


@contextmanager
def locked(
    folder: Path,
    *,
    busy: str = "trained",
    result: Path | None = None,
    flag: str = "--out",
    name: str = NAME,
    wait: float = 0.0,
) -> Iterator[None]:
    """Keeps other processes from working in a folder, which is made if need be. A killed one leaves no lock behind.

    busy    what is being done to it, for who comes second and gets `InUse`
    result  what is being made there, if not the folder itself
    flag    that names another place
    name    of the lock's file: who has another one is not kept out
    wait    seconds that who comes second waits, for work that is soon done

    A file or link of that name which is not manyview's is refused and left as it is. Where the file system has no
    locks nobody is kept out.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_lock(folder / name, missing=True):
        raise UserError(None, f"{printable(str(folder / name))} is no lock of manyview's; give another {flag}")
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    _held.add(handle)
    try:
        end = time.monotonic() + wait
        while (owner := _take(handle)) is not None and time.monotonic() < end:
            time.sleep(POLL)
        if owner is not None:
            what = f"{printable(str(result or folder))} is being {busy} by {owner}"
            raise InUse(None, f"{what}; wait for it, stop it, or give another {flag}")
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
        yield
    finally:
        _held.discard(handle)
        os.close(handle)


def is_lock(path: Path, *, missing: bool = False) -> bool:
    """Whether a file is a lock that `locked` has left, perhaps before it wrote its owner; else what `missing` says."""
    if not os.path.lexists(path):
        return missing
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    content = path.read_bytes() if path.stat().st_size <= 300 else b"too much"
    return content == b"" or OWNER.fullmatch(content) is not None


def is_free(folder: Path) -> bool:
    """Tells whether no process works in a folder now; asking takes its lock for an instant."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        return _take(handle) is None
    finally:
        os.close(handle)


def _take(handle: int) -> str | None:
    """Takes the lock, or returns who has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        process, _, host = os.pread(handle, 300, 0).decode(errors="replace").partition(" ")
        return f"process {process} on {host}" if host else "another process"
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return None


def _let_go() -> None:
    """A forked child, such as a worker that outlives its killed parent, has no part in the lock."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)
