"""Embeddings that are not complete: pieces in a folder beside the file that they will be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from manyview.core.atomic import atomic_write, naming_setting, remove_drafts
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.embeddings.file_format import About, Array, Piece, read, write
from manyview.embeddings.images import Images, path_of
from manyview.training.checkpoint import InUse, locked, naming_full_disk

BATCHES = 8  # in a piece: what a kill costs at most
PLAN = "about.json"
SAME = ("weights", "size", "mean", "std", "view", "fingerprint", "dtype", "batch_size", "version")


class PartialEmbeddings:
    """The folder `embeddings.npz.part`, where pieces gather.

    Pieces hold always the same images in the same batches, so that it makes no difference who stopped when.
    """

    def __init__(self, path: Path, about: About, images: Images) -> None:
        self.path, self.about, self.images = path, about, images
        self.folder = path.with_name(f"{path.name}.part")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps others from writing the same file. The folder stays only where there is something to go on with."""
        with naming_setting("to", self.path):
            self.folder.mkdir(exist_ok=True)
        try:
            with locked(self.folder):
                try:
                    yield
                finally:
                    if self.path.exists() or not (self.folder / PLAN).exists():
                        shutil.rmtree(self.folder, ignore_errors=True)
        except InUse:
            name = printable(str(self.path))
            raise InUse(
                None, f"{name} is being written by another process; wait for it, or give another --to"
            ) from None

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

    def missing(self) -> dict[int, list[range]]:
        """Pieces that are still to be made: number -> the rows of each batch."""
        return {number: self._batches(number) for number in self._numbers() if not self._file(number).exists()}

    def save(self, number: int, rows: Sequence[int], vectors: Array, broken: dict[int, str]) -> None:
        """A piece: vectors (len(rows), d) of rows of the data set, and what could not be read."""
        dataset = self.images.dataset
        why = {dataset.name(row): text for row, text in broken.items()}
        file = self._file(number)
        with naming_full_disk(file, _remedy), atomic_write(file) as draft, draft.open("wb") as stream:
            np.savez(
                stream,
                path=np.array([path_of(self.images, row) for row in rows], dtype=np.bytes_),
                id=dataset.ids[list(rows)].numpy(),
                label=self.images.labels[list(rows)].numpy(),
                vector=vectors,
                broken=np.array(json.dumps(why).encode()),
            )

    def join(self) -> None:
        """Writes the file from its pieces."""
        broken: dict[str, str] = {}
        kept = 0
        for piece in self._pieces("broken", "id"):
            broken |= json.loads(piece["broken"].item())
            kept += len(piece["id"])
        if not kept:
            name, why = next(iter(broken.items()))
            raise UserError("data", f"none of the {len(self.images.dataset)} images can be read, from {name}: {why}")
        with naming_full_disk(self.path, _remedy):
            write(self.path, replace(self.about, broken=broken), self._pieces)

    def _pieces(self, *columns: str) -> Iterator[Piece]:
        for number in self._numbers():
            yield _load(self._file(number), columns)

    def _numbers(self) -> range:
        return range(-(-len(self.images.dataset) // (BATCHES * self.about.batch_size)))

    def _batches(self, number: int) -> list[range]:
        size, images = self.about.batch_size, len(self.images.dataset)
        first = number * BATCHES * size
        starts = range(first, min(first + BATCHES * size, images), size)
        return [range(start, min(start + size, images)) for start in starts]

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


def _plan(path: Path) -> About:
    try:
        return About.from_json(path.read_bytes())
    except ValueError as error:
        raise UserError(None, f"{printable(str(path))} is damaged: {error}; delete its folder to start anew") from None


def _load(file: Path, columns: Sequence[str]) -> Piece:
    try:
        with np.load(file, allow_pickle=False) as piece:
            return {name: piece[name] for name in columns}
    except Exception as error:  # damage raises almost anything
        name = printable(str(file))
        raise UserError(None, f"{name} is damaged: {error}; delete it and start the same command again") from None


def _check(old: About, new: About, where: Path, remedy: str) -> None:
    for name in SAME:
        was, now = (getattr(each, name) for each in (old, new))
        if was != now:
            hint = {"fingerprint": "other images", "weights": f"another encoder, {old.encoder}"}
            what = hint.get(name, f"{name} {was}, not {now}")
            raise UserError(None, f"{printable(str(where))} is of {printable(what)}; {remedy}")


def _remedy() -> str:
    return "free some space and start the same command again, which goes on from there"
