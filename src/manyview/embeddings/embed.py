"""Every image of a data set as a vector, in a file. What was stopped goes on where it was."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview import __version__
from manyview.core.atomic import atomic_write, naming_full_disk, naming_setting, remove_drafts
from manyview.core.bounds import MOST, MOST_WORKERS, AtLeast, AtMost, check_bounds
from manyview.core.errors import UserError
from manyview.core.lock import NAME as LOCK
from manyview.core.lock import locked
from manyview.core.parallel import resolve_device
from manyview.core.progress import progress_bar
from manyview.core.text import printable
from manyview.data import Dataset
from manyview.data.image import MAX_PIXELS
from manyview.data.splits import Labels
from manyview.data.workers import usual_workers
from manyview.embeddings.file_format import DTYPES, About, Array, Embeddings, checked, read, write
from manyview.embeddings.image_source import ImageReader, ImageSource, one_view, open_images, read_images
from manyview.embeddings.model_source import ModelSource, OneModel, open_model, weights_checksum
from manyview.features.embedding_pass import embed_pieces, on_device
from manyview.features.feature_cache import Piece, PieceStore, join_pieces

BATCHES = 8  # in a piece: what a kill costs at most
PLAN = "about.json"
OURS = re.compile(r"about\.json|lock|\d{6,}\.safetensors|\..+\.part", re.DOTALL)  # in the folder of an unfinished file
SAME = ("weights", "size", "mean", "std", "view", "fingerprint", "dtype", "batch_size", "version")


def embed(
    model: OneModel,
    data: str | Path | Dataset,
    to: str | Path,
    *,
    split: str | None = None,
    root: str | Path | None = None,
    labels: Labels = "auto",
    download: bool = False,
    max_pixels: int = MAX_PIXELS,
    dtype: str = "float32",
    batch_size: int = 64,
    device: str = "auto",
    workers: int | None = None,
    progress: bool = False,
    **encoder: Any,
) -> Embeddings:
    """Writes the embedding of every image that can be read to an .npz or .parquet file, and reads it.

    model     a run's folder, an encoder, a file or the name of one, as `open_model` takes it
    split     of the data; None: all of a folder, the training split of a named set
    dtype     of a vector, float32 or float16
    progress  is shown on stderr
    encoder   size, weights, pretrained, stem: which one is meant, where `model` is a name

    Pieces gather in a folder beside the file, `embeddings.npz.part`. The same call after an interruption goes on from
    there, and ends with the same bytes; one with other settings, encoder or images is refused.

    >>> embeddings = embed("runs/dcl-photos-1a2b3c", "photos", "embeddings.npz")
    """
    path = target(to)
    if dtype not in DTYPES:
        raise UserError("dtype", f"expected {' or '.join(DTYPES)}, got {dtype!r}")
    check_bounds("batch_size", batch_size, [AtLeast(1), AtMost(MOST)])
    check_bounds("workers", workers, [AtLeast(0), AtMost(MOST_WORKERS)])
    place = resolve_device(device)
    images = open_images(data, split=split, root=root, labels=labels, download=download, max_pixels=max_pixels)
    source = one_encoder(model, **({} if isinstance(model, ModelSource) else {"like": images.dataset, **encoder}))
    if not source.trained and not isinstance(model, ModelSource):
        name = f"the name {source.name} alone"
        raise UserError("encoder", f"{name} has random weights; give --pretrained or --weights FILE")
    images = one_view(images, *source.encoders)
    partial = PartialEmbeddings(path, _about(source, images, dtype, batch_size), images)
    with partial.alone():
        if not partial.complete():
            _fill(partial, source, place, workers, progress)
            partial.join()
    return read(path)


def one_encoder(model: OneModel, **options: Any) -> ModelSource:
    """A model of one encoder; the options are those of `open_model`."""
    source = open_model(model, **options)
    if len(source.encoders) != 1:
        line = f"expected one encoder, got the {len(source.encoders)} of {source.name}; give one at a time"
        raise UserError("encoder", line)
    return source


def target(to: str | Path) -> Path:
    """A file that can be written."""
    path = checked(to)
    if not path.parent.is_dir():
        raise UserError("to", f"there is no folder {printable(str(path.parent))}; make it first")
    if path.is_dir():
        raise UserError("to", f"{printable(str(path))} is a folder; give the name of a file in it")
    if path.is_symlink() and not path.is_file():
        raise UserError("to", f"{printable(str(path))} is a link to no file; remove it, or give another --to")
    return path


def _about(source: ModelSource, images: ImageSource, dtype: str, batch_size: int) -> About:
    return About(
        encoder=source.name, network=source.encoder.name, weights=weights_checksum(source.encoder), size=source.size,
        mean=tuple(source.picture.mean), std=tuple(source.picture.std), view=images.dataset.modalities[0],
        data=images.data, options=images.options, root=images.root, classes=images.classes, dtype=dtype,
        batch_size=batch_size, fingerprint=images.fingerprint, version=__version__, broken={},
    )  # fmt: skip


def _fill(
    partial: PartialEmbeddings, source: ModelSource, device: torch.device, workers: int | None, shown: bool
) -> None:
    """Makes the pieces that are missing, in order."""
    encoder, dataset, about = source.encoder, partial.images.dataset, partial.about
    missing = partial.missing()
    pieces = [partial.store.rows(number) for number in missing]
    done = len(dataset) - sum(map(len, pieces))
    if workers is None and device.type == "cpu":
        workers = max(1, usual_workers() // 2)  # the encoder wants cores as well
    reader = ImageReader(dataset, source.pipeline(about.view))
    batches = read_images(reader, [rows for piece in pieces for rows in piece.split(about.batch_size)], workers)
    progress = progress_bar(len(dataset), "embedding", start=done, shown=shown, lines=True)
    with closing(batches), on_device(encoder, device), progress as advance:
        made = embed_pieces(encoder, batches, pieces, advance=advance)
        for number, piece in zip(missing, made, strict=True):
            partial.save(number, replace(piece, vectors=_rounded(piece.vectors, about.dtype, encoder.name)))


def _rounded(vectors: Tensor, dtype: str, encoder: str) -> Tensor:
    """Vectors in the dtype of the file, which must be able to hold them."""
    if not torch.isfinite(vectors).all():
        raise UserError("encoder", f"the embeddings of {encoder} hold NaN or infinite numbers; it has diverged")
    to = getattr(torch, dtype)
    if len(vectors) and vectors.abs().max() > torch.finfo(to).max:
        raise UserError("dtype", f"{dtype} cannot hold the number {vectors.abs().max():g}; choose float32")
    return vectors.to(to)


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
        """Keeps others from writing the same file. The folder stays only where there is something to go on with.

        A folder of somebody else's by that name is refused; what is not ours in ours stays, and the folder with it.
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
        """Whether the file is there. If it, or what there is of it, is of something else, that is one line."""
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
        with naming_full_disk(self.path, _remedy):
            write(self.path, replace(self.about, broken=broken), columns, self._vectors())

    def _note(self, number: int, piece: Piece) -> None:
        self._done[number] = replace(piece, vectors=torch.empty(0))

    def _vectors(self) -> Iterator[Array]:
        for number in range(len(self.store)):
            piece = self.store.read(number)
            if piece is None:
                where = printable(str(self.store.path(number)))
                raise UserError(None, f"{where} was damaged while the file was written; start the same command again")
            yield piece.vectors.numpy()


def _check_ours(folder: Path) -> None:
    """Refuses what is there by the name of our folder and is not ours: a link, or a folder without our plan."""
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
