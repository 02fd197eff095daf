"""Features on disk, so that an encoder embeds a data set once, whatever is asked of it afterwards.

They are known by what they are made of (`key`), and lie in pieces. Images that could not be read are tried again.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from manyview.features.pieces import Piece, PieceStore, join_pieces

PIECE = 1024  # images
LIMIT = 20 << 30  # bytes of all that is kept
PROBE_CHECKPOINT = ".probe"  # ending of the file where a probe's training was interrupted
OURS = re.compile(rf"[0-9a-f]{{32}}({re.escape(PROBE_CHECKPOINT)})?")
FILE = re.compile(r"\d{6}\.safetensors|\..+\.part")

Make = Callable[[list[Tensor]], Iterator[Piece]]
"""Makes the pieces of which it is given the rows, in order."""
Readable = Callable[[Tensor], Tensor]
"""Those of some rows that can be read now."""


def default_folder() -> Path:
    """The environment's MANYVIEW_CACHE, else ~/.cache/manyview/features."""
    given = os.environ.get("MANYVIEW_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "manyview" / "features"


class FeatureCache:
    """A folder of features, at most `limit` bytes; what was not used for longest goes first.

    A disk that is full or may not be written to costs what would be kept, and not the evaluation.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, limit: int = LIMIT) -> None:
        self.folder = default_folder() if folder is None else Path(folder).expanduser()
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
            kept = [each for each in self.folder.iterdir() if _is_ours(each)]
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
    """What `FeatureCache.features` gives, where nothing is to be kept."""
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
