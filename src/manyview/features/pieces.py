"""Vectors of a data set in pieces on disk: work that was stopped goes on, and a damaged piece is made again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from manyview.core.atomic import atomic_write


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


def _checksum(rows: Tensor, vectors: Tensor, unreadable: str) -> str:
    total = hashlib.blake2b(unreadable.encode(), digest_size=16)
    for tensor in (rows, vectors):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.contiguous().numpy().tobytes())
    return total.hexdigest()
