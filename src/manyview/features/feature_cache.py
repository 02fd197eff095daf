"""Features on disk in pieces: an encoder embeds a data set once, work that was stopped goes on, damage is made good."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from manyview.core.atomic import atomic_write, expanded

PIECE = 1024  # images
LIMIT = 20 << 30  # bytes of all that is kept
PROBE_CHECKPOINT = ".probe"  # ending of the file where a probe's training was interrupted
OURS = re.compile(rf"[0-9a-f]{{32}}({re.escape(PROBE_CHECKPOINT)})?")
FILE = re.compile(r"\d{6}\.safetensors|\..+\.part")


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows of a data set, embedded.

    rows        (m,) int64, those that could be read
    vectors     (m, d)
    unreadable  why others could not be read, where that is known
    """

    rows: Tensor
    vectors: Tensor
    unreadable: dict[int, str] = field(default_factory=dict)


class PieceStore:
    """A folder of numbered files, each with the vectors of `size` rows of `count`, and sealed with a check sum.

    A file appears whole or not at all. Reading one runs no code from it.
    """

    def __init__(self, folder: Path, count: int, size: int) -> None:
        self.folder, self.count, self.size = folder, count, size

    def __len__(self) -> int:
        return -(-self.count // self.size)

    def rows(self, number: int) -> Tensor:
        """The rows of the data that a piece is of."""
        return torch.arange(number * self.size, min(self.count, (number + 1) * self.size))

    def read(self, number: int) -> Piece | None:
        """A piece, or None where it is missing or damaged."""
        try:
            with safe_open(self.path(number), framework="pt") as file:
                rows, vectors, said = file.get_tensor("rows"), file.get_tensor("vectors"), file.metadata() or {}
        except (SafetensorError, OSError):
            return None
        unreadable = said.get("unreadable", "")
        if said.get("sum") != _checksum(rows, vectors, unreadable) or len(rows) != len(vectors):
            return None
        if not bool(torch.isin(rows, self.rows(number)).all()):
            return None
        return Piece(rows, vectors, {int(row): why for row, why in json.loads(unreadable).items()})

    def write(self, number: int, piece: Piece) -> None:
        rows, vectors, unreadable = piece.rows.contiguous(), piece.vectors.contiguous(), json.dumps(piece.unreadable)
        seal = {"unreadable": unreadable, "sum": _checksum(rows, vectors, unreadable)}
        content = save({"rows": rows, "vectors": vectors}, metadata=seal)
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path(number)) as draft:
            draft.write_bytes(content)

    def path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"


def join_pieces(pieces: list[Piece]) -> Piece:
    """Several pieces as one, in their order."""
    unreadable = {row: why for piece in pieces for row, why in piece.unreadable.items()}
    rows, vectors = ([getattr(piece, name) for piece in pieces] for name in ("rows", "vectors"))
    return Piece(torch.cat(rows), torch.cat(vectors), unreadable)


Make = Callable[[list[Tensor]], Iterator[Piece]]
"""Makes the pieces of which it is given the rows, in order."""
Readable = Callable[[Tensor], Tensor]
"""Gives those of some rows that can be read now."""


class FeatureCache:
    """A folder of features, at most `limit` bytes; what was not used for longest goes first.

    folder  without, the environment's MANYVIEW_CACHE, else ~/.cache/manyview/features

    A disk that is full or may not be written to costs what would be kept, and not the evaluation.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, limit: int = LIMIT) -> None:
        usual = os.environ.get("MANYVIEW_CACHE") or "~/.cache/manyview/features"
        self.folder = expanded("cache", usual if folder is None else folder)
        self.limit = limit
        self._closed = False

    def features(self, key: str, count: int, make: Make, readable: Readable = lambda rows: rows) -> Piece:
        """The features called `key` of `count` images; pieces that are missing are made, and kept as they come.

        Rows that a piece lacks are embedded if they have become readable: a disk may have been away for a while.
        """
        store = PieceStore(self.folder / key, count, PIECE)
        pieces = {number: piece for number in range(len(store)) if (piece := store.read(number)) is not None}
        if pieces:
            with suppress(OSError):  # a folder that is only to be read from is as good
                os.utime(store.folder)
        missing = [number for number in range(len(store)) if number not in pieces]
        made = zip(missing, make([store.rows(number) for number in missing]), strict=True) if missing else ()
        found = dict(pieces)
        for number, piece in chain(_mended(pieces, store, make, readable), made):
            found[number] = piece
            self._write(store, number, piece)
        if missing:
            self.trim(key)
        return join_pieces([found[number] for number in range(len(store))])

    def trim(self, keep: str) -> None:
        """Removes what was not used for longest, until the rest fits; never `keep`, nor what is not ours."""
        with suppress(OSError):  # somebody else may be doing the same
            named = [each for each in self.folder.iterdir() if OURS.fullmatch(each.name)]
            kept = [each for each in named if each.is_dir() == (not each.suffix)]
            kept.sort(key=lambda each: (each.name == keep, each.stat().st_mtime), reverse=True)
            total = 0
            for each in kept:
                total += sum(file.stat().st_size for file in (each.iterdir() if each.is_dir() else [each]))
                if total > self.limit and each.name != keep:
                    _remove(each)

    def _write(self, store: PieceStore, number: int, piece: Piece) -> None:
        if self._closed:
            return
        try:
            store.write(number, piece)
        except OSError as error:
            self._closed = True
            warnings.warn(f"features are not kept: {store.folder} cannot be written to: {error.strerror}", stacklevel=2)


def without_cache(count: int, make: Make) -> Piece:
    """Gives what `FeatureCache.features` gives, where nothing is to be kept."""
    store = PieceStore(Path(), count, PIECE)
    return join_pieces(list(make([store.rows(number) for number in range(len(store))])))


def _mended(pieces: dict[int, Piece], store: PieceStore, make: Make, readable: Readable) -> Iterator[tuple[int, Piece]]:
    """The pieces that lacked rows which can be read now, with these."""
    none = torch.empty(0, dtype=torch.long)
    asked = torch.cat([none, *(store.rows(number) for number in pieces)])
    lacking = asked[~torch.isin(asked, torch.cat([none, *(piece.rows for piece in pieces.values())]))]
    rows = readable(lacking) if len(lacking) else lacking
    if not len(rows):
        return
    (late,) = make([rows])
    for number in (late.rows // PIECE).unique().tolist():
        new = late.rows // PIECE == number
        both = join_pieces([pieces[number], Piece(late.rows[new], late.vectors[new])])
        order = both.rows.argsort()
        yield number, Piece(both.rows[order], both.vectors[order])


def _remove(home: Path) -> None:
    """Only what has our names, in case the folder is somebody's as well."""
    if not home.is_dir():
        home.unlink(missing_ok=True)
        return
    for file in home.iterdir():
        if FILE.fullmatch(file.name):
            file.unlink(missing_ok=True)
    home.rmdir()


def _checksum(rows: Tensor, vectors: Tensor, unreadable: str) -> str:
    total = hashlib.blake2b(unreadable.encode(), digest_size=16)
    for tensor in (rows, vectors):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()
