"""Where results go: what cannot be written to is said in one line, by the argument's name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from manyview.core.errors import UserError
from manyview.core.text import printable


@contextmanager
def writing(argument: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Names the argument and the path where the system has only an error's number, or a draft's name."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # it is a line of ours already
            raise
        raise UserError(None, _refused(argument, path, error.strerror)) from error


def check_folder_for(argument: str, folder: Path, path: str | os.PathLike[str]) -> None:
    """Before the work: that a folder can hold what is to be written, or can be made."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        raise UserError(None, _refused(argument, path, f"{printable(str(there))} is no folder"))
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(None, _refused(argument, path, f"{printable(str(there))} is only to be read from"))


def _refused(argument: str, path: str | os.PathLike[str], why: str) -> str:
    return f"{argument}: {printable(os.fspath(path))} cannot be written to: {why}; give another"
