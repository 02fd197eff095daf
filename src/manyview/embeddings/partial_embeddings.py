"""The folder of finished pieces of embeddings until the file is complete, used by one process at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from manyview.core.atomic import atomic_write, naming_full_disk, naming_setting, remove_drafts
from manyview.core.errors import UserError
from manyview.core.lock import NAME as LOCK
from manyview.core.lock import locked
from manyview.core.text import printable
from manyview.embeddings.about import About
from manyview.embeddings.columns import Array
from manyview.embeddings.file_format import read, write
from manyview.embeddings.image_source import ImageSource
from manyview.features.feature_cache import Piece, PieceStore, join_pieces

BATCHES = 8  # in a piece: what a kill costs at most
PLAN = "about.json"
OURS = re.compile(r"about\.json|lock|\d{6,}\.safetensors|\..+\.part", re.DOTALL)  # in the folder of an unfinished file
SAME = ("weights", "size", "mean", "std", "view", "grid", "fingerprint", "dtype", "batch_size", "version")


class PartialEmbeddings:
    """The folder `embeddings.npz.part` of finished pieces.

    A piece always holds the same images in the same batches, so that interruptions change no number.
    """

    def __init__(self, path: Path, about: About, images: ImageSource) -> None:
        self.path, self.about, self.images = path, about, images
        self.folder = path.with_name(f"{path.name}.part")
        self.store = PieceStore(self.folder, len(images.dataset), BATCHES * about.batch_size)
        self._done: dict[int, Piece] = {}  # without their vectors

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Locks out other writers of the same file. The folder stays only if there is something to resume.

        A folder of another program by that name is refused; its files in our folder stay, and the folder with them.
        """
        with naming_setting("to", self.path):
            _check_ours(self.folder)
            self.folder.mkdir(exist_ok=True)
        with locked(self.folder, busy="written", result=self.path, flag="--to"):
            try:
                yield
            finally:
                if self.path.exists() or not (self.folder / PLAN).exists():
                    with suppress(OSError):
                        for name in filter(OURS.fullmatch, os.listdir(self.folder)):
                            (self.folder / name).unlink()
                        self.folder.rmdir()

    def complete(self) -> bool:
        """Tells whether the file exists, and refuses a file or pieces of anything else."""
        if self.path.exists():
            _check(read(self.path).about, self.about, self.path, "delete it, or give another --to")
            return True
        remove_drafts(self.folder)
        plan = self.folder / PLAN
        if plan.exists():
            try:
                begun = About.from_json(plan.read_bytes())
            except (ValueError, RecursionError) as error:
                why = f"{printable(str(plan))} is damaged: {error}"
                raise UserError(None, f"{why}; delete its folder to start anew") from None
            _check(begun, self.about, self.folder, "delete that folder to start anew")
        else:
            with naming_full_disk(plan, _remedy), atomic_write(plan) as draft:
                draft.write_bytes(self.about.to_json())
        return False

    def missing(self) -> list[int]:
        """The numbers of the pieces that are still to be computed, because they are absent or damaged."""
        for number in range(len(self.store)):
            piece = self.store.read(number)
            if piece is not None:
                self._note(number, piece)
        return [number for number in range(len(self.store)) if number not in self._done]

    def save(self, number: int, piece: Piece) -> None:
        with naming_full_disk(self.store.path(number), _remedy):
            self.store.write(number, piece)
        self._note(number, piece)

    def join(self, dim: int | None = None) -> None:
        """Writes the file from its pieces, all of which exist.

        dim: of the embeddings, where projections follow them
        """
        dataset, found = self.images.dataset, join_pieces([self._done[number] for number in range(len(self.store))])
        broken = {dataset.name(row): why for row, why in found.unreadable.items()}
        if not len(found.rows):
            name, why = next(iter(broken.items()))
            raise UserError("data", f"none of the {len(dataset)} images can be read, from {name}: {why}")
        columns = {
            "path": np.array([self.images.path(row) for row in found.rows.tolist()], dtype=np.bytes_),
            "id": dataset.ids[found.rows].numpy(),
            "label": self.images.labels[found.rows].numpy(),
        }
        parts = [self._vectors(slice(None))]
        if dim is not None:
            parts = [self._vectors(slice(dim)), self._vectors(slice(dim, None))]
        with naming_full_disk(self.path, _remedy):
            write(self.path, replace(self.about, broken=broken), columns, *parts)

    def _note(self, number: int, piece: Piece) -> None:
        self._done[number] = replace(piece, vectors=torch.empty(0))

    def _vectors(self, columns: slice) -> Iterator[Array]:
        for number in range(len(self.store)):
            piece = self.store.read(number)
            if piece is None:
                where = printable(str(self.store.path(number)))
                raise UserError(None, f"{where} was damaged while the file was written; start the same command again")
            yield piece.vectors[:, columns].numpy()


def _check_ours(folder: Path) -> None:
    """Refuses something that has the name of our folder but is not ours: a link, or a folder without our plan."""
    if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
        raise UserError("to", f"{printable(str(folder))} is no folder of ours; move it away, or give another --to")
    plan, there = folder / PLAN, sorted(os.listdir(folder)) if folder.is_dir() else []
    begun = plan.is_file() and not plan.is_symlink() and b"manyview_embeddings" in plan.read_bytes()
    others = [name for name in there if name != LOCK and not name.startswith(".")]  # drafts of killed ones
    if others and not begun:
        what = f"{printable(str(folder))} is a folder of somebody's, with {printable(others[0])}"
        raise UserError("to", f"{what}; move it away, or give another --to")


def _check(old: About, new: About, where: Path, remedy: str) -> None:
    for name in SAME:
        was, now = (getattr(each, name) for each in (old, new))
        if was != now:
            hint = {
                "fingerprint": "other images, or of files that were written anew since",
                "weights": f"another encoder, {old.encoder}",
            }
            what = hint.get(name, f"{name} {was}, not {now}")
            raise UserError(None, f"{printable(str(where))} is of {printable(what)}; {remedy}")


def _remedy() -> str:
    return "free some space and start the same command again, which goes on from there"
