"""Embeddings that are not complete: pieces in a folder beside the file that they will be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from manyview.core.atomic import atomic_write, naming_full_disk, naming_setting, remove_drafts
from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.core.text import printable
from manyview.embeddings.file_format import About, Array, Columns, read, write
from manyview.embeddings.image_source import ImageSource
from manyview.features.pieces import Piece, PieceStore

BATCHES = 8  # in a piece: what a kill costs at most
PLAN = "about.json"
SAME = ("weights", "size", "mean", "std", "view", "fingerprint", "dtype", "batch_size", "version")


class PartialEmbeddings:
    """The folder `embeddings.npz.part`, where pieces gather.

    Pieces hold always the same images in the same batches, so that it makes no difference who stopped when.
    """

    def __init__(self, path: Path, about: About, images: ImageSource) -> None:
        self.path, self.about, self.images = path, about, images
        self.folder = path.with_name(f"{path.name}.part")
        self.store = PieceStore(self.folder, len(images.dataset), BATCHES * about.batch_size)
        self._done: dict[int, Piece] = {}  # without their vectors

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps others from writing the same file. The folder stays only where there is something to go on with."""
        with naming_setting("to", self.path):
            self.folder.mkdir(exist_ok=True)
        with locked(self.folder, busy="written", result=self.path, flag="--to"):
            try:
                yield
            finally:
                if self.path.exists() or not (self.folder / PLAN).exists():
                    shutil.rmtree(self.folder, ignore_errors=True)

    def complete(self) -> bool:
        """Whether the file is there. If it, or what there is of it, is of something else, that is one line."""
        if self.path.exists():
            _check(read(self.path).about, self.about, self.path, "delete it, or give another --to")
            return True
        remove_drafts(self.folder)
        plan = self.folder / PLAN
        if plan.exists():
            _check(_plan(plan), self.about, self.folder, "delete that folder to start anew")
        else:
            with naming_full_disk(plan, _remedy), atomic_write(plan) as draft:
                draft.write_bytes(self.about.to_json())
        return False

    def missing(self) -> list[int]:
        """The numbers of the pieces that are still to be made, because they are not there or damaged."""
        for number in range(len(self.store)):
            piece = self.store.read(number)
            if piece is not None:
                self._note(number, piece)
        return [number for number in range(len(self.store)) if number not in self._done]

    def save(self, number: int, piece: Piece) -> None:
        with naming_full_disk(self.store.path(number), _remedy):
            self.store.write(number, piece)
        self._note(number, piece)

    def join(self) -> None:
        """Writes the file from its pieces, all of which are there."""
        dataset, pieces = self.images.dataset, [self._done[number] for number in range(len(self.store))]
        broken = {dataset.name(row): why for piece in pieces for row, why in piece.unreadable.items()}
        if not any(len(piece.rows) for piece in pieces):
            name, why = next(iter(broken.items()))
            raise UserError("data", f"none of the {len(dataset)} images can be read, from {name}: {why}")
        with naming_full_disk(self.path, _remedy):
            write(self.path, replace(self.about, broken=broken), self._columns)

    def _note(self, number: int, piece: Piece) -> None:
        self._done[number] = replace(piece, vectors=torch.empty(0))

    def _columns(self, *names: str) -> Iterator[Columns]:
        """Columns of the file, piece by piece."""
        for number in range(len(self.store)):
            piece = self._read(number) if "vector" in names else self._done[number]
            yield {name: self._column(name, piece) for name in names}

    def _column(self, name: str, piece: Piece) -> Array:
        if name == "path":
            return np.array([self.images.path(row) for row in piece.rows.tolist()], dtype=np.bytes_)
        if name == "vector":
            vectors: Array = piece.vectors.numpy()
            return vectors
        column: Array = (self.images.dataset.ids if name == "id" else self.images.labels)[piece.rows].numpy()
        return column

    def _read(self, number: int) -> Piece:
        piece = self.store.read(number)
        if piece is None:
            where = printable(str(self.store.path(number)))
            raise UserError(None, f"{where} was damaged while the file was written; start the same command again")
        return piece


def _plan(path: Path) -> About:
    try:
        return About.from_json(path.read_bytes())
    except ValueError as error:
        raise UserError(None, f"{printable(str(path))} is damaged: {error}; delete its folder to start anew") from None


def _check(old: About, new: About, where: Path, remedy: str) -> None:
    for name in SAME:
        was, now = (getattr(each, name) for each in (old, new))
        if was != now:
            hint = {"fingerprint": "other images", "weights": f"another encoder, {old.encoder}"}
            what = hint.get(name, f"{name} {was}, not {now}")
            raise UserError(None, f"{printable(str(where))} is of {printable(what)}; {remedy}")


def _remedy() -> str:
    return "free some space and start the same command again, which goes on from there"
