"""Features on disk, so that an encoder looks at a data set once, whatever is asked of it afterwards.

They are known by what they are made of (`key`), and lie in pieces, so that work that was interrupted goes on where it
was. A piece that is damaged is made again.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from manyview.whole import whole

PIECE = 1024  # images
LIMIT = 20 << 30  # bytes of all that is kept
OURS = re.compile(r"[0-9a-f]{32}")
FILE = re.compile(r"\d{6}\.safetensors|\..+\.part")

Made = tuple[Tensor, Tensor]
"""Rows (m,) of the data that were looked at, and what was seen (m, d)."""
Make = Callable[[list[Tensor]], Iterator[Made]]
"""Of the rows of some pieces, in their order, each piece; without rows that could not be looked at."""


def default_folder() -> Path:
    """The environment's MANYVIEW_CACHE, else ~/.cache/manyview/features."""
    given = os.environ.get("MANYVIEW_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "manyview" / "features"


class Store:
    """A folder of features, at most `limit` bytes; what was not used for longest goes first.

    A disk that is full or may not be written to costs the memory of this folder, and not the evaluation.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, limit: int = LIMIT) -> None:
        self.folder = default_folder() if folder is None else Path(folder).expanduser()
        self.limit = limit
        self._closed = False

    def features(self, key: str, count: int, make: Make) -> Made:
        """The features called `key` of `count` images; pieces that are missing are made, and kept as they come."""
        pieces = {number: self.read(key, number, count) for number in range(-(-count // PIECE))}
        missing = [number for number, piece in pieces.items() if piece is None]
        if missing:
            for number, piece in zip(missing, make([rows_of(each, count) for each in missing]), strict=True):
                pieces[number] = piece
                self.write(key, number, piece)
            self.trim(key)
        return _joined([piece for piece in pieces.values() if piece is not None])

    def read(self, key: str, number: int, count: int) -> Made | None:
        """A piece, or None if it is not there or not whole."""
        path = self._path(key, number)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                rows, seen, told = file.get_tensor("rows"), file.get_tensor("seen"), (file.metadata() or {}).get("sum")
            os.utime(path.parent)
        except (SafetensorError, OSError):
            return None
        asked = rows_of(number, count)
        sound = told == _sum(rows, seen) and len(rows) == len(seen) and bool(torch.isin(rows, asked).all())
        return (rows, seen) if sound else None

    def write(self, key: str, number: int, piece: Made) -> None:
        if self._closed:
            return
        path, (rows, seen) = self._path(key, number), piece
        content = save({"rows": rows.contiguous(), "seen": seen.contiguous()}, metadata={"sum": _sum(rows, seen)})
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as draft:
                draft.write_bytes(content)
        except OSError as error:
            self._closed = True
            warnings.warn(f"features are not kept: {path.parent} cannot be written to: {error.strerror}", stacklevel=2)

    def trim(self, keep: str) -> None:
        """Removes what was not used for longest, until the rest fits; never `keep`, nor what is not ours."""
        with suppress(OSError):  # somebody else may be doing the same
            homes = [home for home in self.folder.iterdir() if OURS.fullmatch(home.name) and home.is_dir()]
            homes.sort(key=lambda home: (home.name == keep, home.stat().st_mtime), reverse=True)
            total = 0
            for home in homes:
                total += sum(file.stat().st_size for file in home.iterdir())
                if total > self.limit and home.name != keep:
                    _remove(home)

    def _path(self, key: str, number: int) -> Path:
        return self.folder / key / f"{number:06d}.safetensors"


def rows_of(number: int, count: int) -> Tensor:
    """The rows of the data that a piece is of."""
    return torch.arange(number * PIECE, min(count, (number + 1) * PIECE))


def without(count: int, make: Make) -> Made:
    """What `Store.features` gives, where nothing is to be kept."""
    return _joined(list(make([rows_of(number, count) for number in range(-(-count // PIECE))])))


def _joined(pieces: list[Made]) -> Made:
    rows, seen = zip(*pieces, strict=True)
    return torch.cat(rows), torch.cat(seen)


def _sum(rows: Tensor, seen: Tensor) -> str:
    total = hashlib.blake2b(digest_size=16)
    for tensor in (rows, seen):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def _remove(home: Path) -> None:
    """Only what has our names, in case the folder is somebody's as well."""
    for file in home.iterdir():
        if FILE.fullmatch(file.name):
            file.unlink(missing_ok=True)
    home.rmdir()
