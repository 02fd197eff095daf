"""Features on disk, so that an encoder looks at a data set once, whatever is asked of it afterwards.

They are known by what they are made of (`key`), and lie in pieces, so that work that was interrupted goes on where it
was. A piece that is damaged is made again, and images that could not be read are tried again.
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from manyview.core.atomic import atomic_write

PIECE = 1024  # images
LIMIT = 20 << 30  # bytes of all that is kept
OURS = re.compile(r"[0-9a-f]{32}(\.halfway)?")  # features, or a training that was interrupted
FILE = re.compile(r"\d{6}\.safetensors|\..+\.part")

Made = tuple[Tensor, Tensor]
"""Rows (m,) of the data that were looked at, and what was seen (m, d)."""
Make = Callable[[list[Tensor]], Iterator[Made]]
"""Of the rows of some pieces, in their order, each piece; without rows that could not be looked at."""
Readable = Callable[[Tensor], Tensor]
"""Those of some rows that can be looked at now."""


def default_folder() -> Path:
    """The environment's MANYVIEW_CACHE, else ~/.cache/manyview/features."""
    given = os.environ.get("MANYVIEW_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "manyview" / "features"


class FeatureCache:
    """A folder of features, at most `limit` bytes; what was not used for longest goes first.

    A disk that is full or may not be written to costs the memory of this folder, and not the evaluation.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, limit: int = LIMIT) -> None:
        self.folder = default_folder() if folder is None else Path(folder).expanduser()
        self.limit = limit
        self._closed = False

    def features(self, key: str, count: int, make: Make, readable: Readable = lambda rows: rows) -> Made:
        """The features called `key` of `count` images; pieces that are missing are made, and kept as they come.

        Rows that a piece lacks are looked at if they have become readable: a disk may have been away for a moment.
        """
        there = {number: self.read(key, number, count) for number in range(-(-count // PIECE))}
        pieces = {number: piece for number, piece in there.items() if piece is not None}
        missing = [number for number in there if number not in pieces]
        made = zip(missing, make([rows_of(each, count) for each in missing]), strict=True) if missing else ()
        found = dict(pieces)
        for number, piece in chain(_mended(pieces, count, make, readable), made):
            found[number] = piece
            self.write(key, number, piece)
        if len(found) > len(pieces):
            self.trim(key)
        return _joined([found[number] for number in there])

    def read(self, key: str, number: int, count: int) -> Made | None:
        """A piece, or None if it is not there or not whole."""
        path = self._path(key, number)
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                rows, seen, told = file.get_tensor("rows"), file.get_tensor("seen"), (file.metadata() or {}).get("sum")
        except (SafetensorError, OSError):
            return None
        with suppress(OSError):  # a folder that is only to be read from is as good
            os.utime(path.parent)
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
            with atomic_write(path) as draft:
                draft.write_bytes(content)
        except OSError as error:
            self._closed = True
            warnings.warn(f"features are not kept: {path.parent} cannot be written to: {error.strerror}", stacklevel=2)

    def trim(self, keep: str) -> None:
        """Removes what was not used for longest, until the rest fits; never `keep`, nor what is not ours."""
        with suppress(OSError):  # somebody else may be doing the same
            kept = [each for each in self.folder.iterdir() if _is_ours(each)]
            kept.sort(key=lambda each: (each.name == keep, each.stat().st_mtime), reverse=True)
            total = 0
            for each in kept:
                total += sum(file.stat().st_size for file in (each.iterdir() if each.is_dir() else [each]))
                if total > self.limit and each.name != keep:
                    _remove(each)

    def _path(self, key: str, number: int) -> Path:
        return self.folder / key / f"{number:06d}.safetensors"


def rows_of(number: int, count: int) -> Tensor:
    """The rows of the data that a piece is of."""
    return torch.arange(number * PIECE, min(count, (number + 1) * PIECE))


def without(count: int, make: Make) -> Made:
    """What `FeatureCache.features` gives, where nothing is to be kept."""
    return _joined(list(make([rows_of(number, count) for number in range(-(-count // PIECE))])))


def _mended(pieces: dict[int, Made], count: int, make: Make, readable: Readable) -> Iterator[tuple[int, Made]]:
    """The pieces that lacked rows which can be looked at now, with these."""
    asked = torch.cat([torch.empty(0, dtype=torch.long), *(rows_of(number, count) for number in pieces)])
    lacking = asked[~torch.isin(asked, torch.cat([asked[:0], *(rows for rows, _ in pieces.values())]))]
    rows = readable(lacking) if len(lacking) else lacking
    if not len(rows):
        return
    ((rows, seen),) = make([rows])
    for number in (rows // PIECE).unique().tolist():
        new = rows // PIECE == number
        both = _joined([pieces[number], (rows[new], seen[new])])
        order = both[0].argsort()
        yield number, (both[0][order], both[1][order])


def _joined(pieces: list[Made]) -> Made:
    rows, seen = zip(*pieces, strict=True)
    return torch.cat(rows), torch.cat(seen)


def _sum(rows: Tensor, seen: Tensor) -> str:
    total = hashlib.blake2b(digest_size=16)
    for tensor in (rows, seen):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def _is_ours(path: Path) -> bool:
    return OURS.fullmatch(path.name) is not None and path.is_dir() == (not path.suffix)


def _remove(home: Path) -> None:
    """Only what has our names, in case the folder is somebody's as well."""
    if not home.is_dir():
        home.unlink(missing_ok=True)
        return
    for file in home.iterdir():
        if FILE.fullmatch(file.name):
            file.unlink(missing_ok=True)
    home.rmdir()
