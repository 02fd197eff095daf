"""Every image of a data set as a vector, in a file. What was stopped goes on where it was."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
from manyview.embeddings.about import About
from manyview.embeddings.checksums import weights_checksum
from manyview.embeddings.file_format import DTYPES, Array, Embeddings, checked, read, write
from manyview.embeddings.image_source import (
    ImageReader,
    ImageSource,
    check_form,
    is_named,
    narrowed,
    open_images,
    read_images,
)
from manyview.embeddings.model_source import ModelSource, OneModel, open_model, run_of
from manyview.features.embedding_pass import Read, embed_pieces, embedding, on_device, project
from manyview.features.feature_cache import Piece, PieceStore, join_pieces
from manyview.training.load import normals_options
from manyview.training.run import Run

BATCHES = 8  # in a piece: what a kill costs at most
PLAN = "about.json"
OURS = re.compile(r"about\.json|lock|\d{6,}\.safetensors|\..+\.part", re.DOTALL)  # in the folder of an unfinished file
SAME = ("weights", "size", "mean", "std", "view", "fingerprint", "dtype", "batch_size", "version")


def embed(
    model: OneModel,
    data: str | Path | Dataset | None,
    to: str | Path,
    *,
    view: str | None = None,
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
    data      None: the run's own
    view      whose encoder of a run that has one a view; the data is that view's modality, or has it among others. The
              file then also holds projections, which those of other views can be compared with
    split     of the data; None: all splits of a folder, the training split of a named set
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
    opened: dict[str, Any] = {
        "split": split,
        "root": root,
        "labels": labels,
        "download": download,
        "max_pixels": max_pixels,
    }
    run = run_of(model)
    known = None if run is None else open_model(model, **encoder)  # which says what its data is like
    if data is None:
        data, opened = _own_data(run, split)
    views: tuple[str, ...] = () if view is None else (view,)
    special = None
    if run is not None and known is not None:
        chosen = known.only(view)
        special, views = _own_form(chosen), tuple(chosen.encoders)
        opened = {**normals_options(run, views), **opened}
    images = open_images(data, modality=special, views=views, **opened)
    options = {} if isinstance(model, ModelSource) else {"like": images.dataset, **encoder}
    source = (open_model(model, **options) if known is None else known).only(view)
    if not source.trained and not isinstance(model, ModelSource):
        name = f"the name {source.name} alone"
        raise UserError("encoder", f"{name} has random weights; give --pretrained or --weights FILE")
    alone = len(images.dataset.modalities) == 1
    images = narrowed(images, source.modality(next(iter(source.encoders)), images.dataset))
    for name, each in source.inputs.items():
        check_form(images, each, f"{name or 'the encoder'} of {source.name}")
    if alone:
        _check_folder_name(images, source, known or source)
    partial = PartialEmbeddings(path, _about(source, images, dtype, batch_size), images)
    with partial.alone():
        if not partial.complete():
            _fill(partial, source, place, workers, progress)
            partial.join(source.encoder.dim if source.heads else None)
    return read(path)


def _own_data(run: Run | None, split: str | None) -> tuple[str, dict[str, Any]]:
    """The data that a run was trained on, and the options that open it."""
    if run is None or run.config.own_data:
        why = "" if run is None else f": {run.folder} was trained on a data set of your own"
        raise UserError("data", f"give a folder, or a name of `manyview list data`{why}")
    left_out = ("imbalance", "download")  # what is no option of `open_data`, or fetches anything
    options = {key: value for key, value in run.config.data_options.items() if key not in left_out}
    usual = options.get("split") if is_named(run.config.data["name"]) else None  # all of a folder, as of any other
    return run.config.data["name"], {**options, "split": split or usual}


def _check_folder_name(images: ImageSource, source: ModelSource, run: ModelSource) -> None:
    """Warns where a plain folder is named like another view of the run than the one that it is read as."""
    named, view = Path(images.root or "").name, next(iter(source.encoders))
    if named in run.encoders and named != view:
        warnings.warn(f"the folder {printable(images.data)} is named {named} and is read as {view}", stacklevel=3)


def _own_form(source: ModelSource) -> str | None:
    """The modality of an encoder whose files are no pictures, and have to be read in their own unit."""
    return next((each.view.modality for each in source.inputs.values() if not each.is_picture), None)


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
    picture = source.picture.mean, source.picture.std
    mean, std = next((each.normalisation for each in source.inputs.values()), picture)
    return About(
        encoder=source.name, network=source.encoder.name, weights=weights_checksum(source.encoder), size=source.size,
        mean=tuple(mean), std=tuple(std), view=next(iter(source.encoders)) or images.dataset.modalities[0],
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
    modality = dataset.modalities[0]
    reader = ImageReader(dataset, source.pipeline(modality, of=dict.fromkeys(source.encoders, modality)))
    batches = read_images(reader, [rows for piece in pieces for rows in piece.split(about.batch_size)], workers)
    progress = progress_bar(len(dataset), "embedding", start=done, shown=shown, lines=True)
    with closing(batches), on_device(encoder, device), progress as advance:
        read_, width = _read(source)
        made = embed_pieces(encoder, batches, pieces, read=read_, width=width, advance=advance)
        for number, piece in zip(missing, made, strict=True):
            partial.save(number, replace(piece, vectors=_rounded(piece.vectors, about.dtype, encoder.name)))


def _read(source: ModelSource) -> tuple[Read, int]:
    """What is taken of the encoder, and how long it is: embeddings, and with a head what it makes of them beside those,
    at unit length."""
    head, dim = next(iter(source.heads.values()), None), source.encoder.dim
    if head is None:
        return embedding, dim

    def both(encoder: nn.Module, x: Tensor) -> Tensor:
        vectors = embedding(encoder, x)
        return torch.cat([vectors, project(head, vectors).to(vectors)], 1)

    with torch.no_grad():
        return both, dim + project(head, torch.zeros(1, dim)).shape[1]


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

    def join(self, dim: int | None = None) -> None:
        """Writes the file from its pieces, all of which are there.

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
