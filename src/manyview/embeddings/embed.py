"""Embeds every image of a data set into a file, and resumes where it was stopped."""

from __future__ import annotations

import math
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from manyview import __version__
from manyview.core.bounds import MOST, MOST_WORKERS, AtLeast, AtMost, check_bounds
from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.core.progress import progress_bar
from manyview.core.text import printable
from manyview.data import Dataset
from manyview.data.image import MAX_PIXELS
from manyview.data.splits import Labels
from manyview.data.workers import usual_workers
from manyview.embeddings.about import About
from manyview.embeddings.checksums import weights_checksum
from manyview.embeddings.file_format import DTYPES, Embeddings, checked, read
from manyview.embeddings.image_source import (
    ImageReader,
    ImageSource,
    check_form,
    is_named,
    narrowed,
    open_images,
    read_images,
)
from manyview.embeddings.model_source import ModelSource
from manyview.embeddings.open_model import OneModel, open_model, run_of
from manyview.embeddings.partial_embeddings import PartialEmbeddings
from manyview.encoders import Encoder
from manyview.features.embedding_pass import Read, embed_pieces, embedding, on_device, project
from manyview.training.load import normals_options
from manyview.training.run import Run

FINE = 7  # rows and columns of a map whose places a person can tell apart


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
    patches: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    workers: int | None = None,
    progress: bool = False,
    **encoder: Any,
) -> Embeddings:
    """Writes the embedding of every image that can be read to an .npz or .parquet file, and reads it.

    model     a run's folder, an encoder, a file or the name of one, as `open_model` takes it
    data      None: the run's own
    view      the view whose encoder is used, of a run with one encoder per view; the data is that view's modality, or
              has it among others. The file then also holds projections, which are comparable with those of other views
    split     of the data; None: all splits of a folder, the training split of a named set
    dtype     of a vector, float32 or float16
    patches   write a vector for every position of the encoder's last feature map, and none of the whole image:
              `Embeddings.patches` is (n, rows, columns, d)
    progress  show a progress bar on stderr
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
    source, images = _open(model, data, view, opened, encoder)
    layer, grid = last_map(source.encoder) if patches else ("", ())
    about = replace(_about(source, images, dtype, batch_size), grid=grid)
    partial = PartialEmbeddings(path, about, images)
    with partial.alone():
        if not partial.complete():
            _fill(partial, source, place, workers, progress, _read_places(layer, grid) if patches else _read(source))
            partial.join(source.encoder.dim if source.heads and not patches else None)
    return read(path)


def _open(
    model: OneModel,
    data: str | Path | Dataset | None,
    view: str | None,
    opened: dict[str, Any],
    encoder: dict[str, Any],
) -> tuple[ModelSource, ImageSource]:
    """Opens the one encoder that is meant, and the images in the modality that it takes.

    opened   options of the data
    encoder  options of an encoder by name
    """
    run = run_of(model)
    known = None if run is None else open_model(model, **encoder)  # which says what its data is like
    if data is None:
        data, opened = _own_data(run, opened["split"])
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
    return source, images


def _own_data(run: Run | None, split: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the data that a run was trained on, and the options that open it."""
    if run is None or run.config.own_data:
        why = "" if run is None else f": {run.folder} was trained on a data set of your own"
        raise UserError("data", f"give a folder, or a name of `manyview list data`{why}")
    left_out = ("imbalance", "download")  # what is no option of `open_data`, or fetches anything
    options = {key: value for key, value in run.config.data_options.items() if key not in left_out}
    usual = options.get("split") if is_named(run.config.data["name"]) else None  # all of a folder, as of any other
    return run.config.data["name"], {**options, "split": split or usual}


def _check_folder_name(images: ImageSource, source: ModelSource, run: ModelSource) -> None:
    """Warns where a plain folder has the name of another view of the run than the one it is read as."""
    named, view = Path(images.root or "").name, next(iter(source.encoders))
    if named in run.encoders and named != view:
        warnings.warn(f"the folder {printable(images.data)} is named {named} and is read as {view}", stacklevel=3)


def _own_form(source: ModelSource) -> str | None:
    """Returns the modality of an encoder whose input files are no pictures and are read in their own unit."""
    return next((each.view.modality for each in source.inputs.values() if not each.is_picture), None)


def target(to: str | Path) -> Path:
    """Returns the path of a file that can be written, or refuses it."""
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
    partial: PartialEmbeddings,
    source: ModelSource,
    device: torch.device,
    workers: int | None,
    shown: bool,
    reading: tuple[Read, int],
) -> None:
    """Computes the pieces that are missing, in order; `reading` is what to read off the encoder, and its length."""
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
        read_, width = reading
        made = embed_pieces(encoder, batches, pieces, read=read_, width=width, advance=advance)
        for number, piece in zip(missing, made, strict=True):
            partial.save(number, replace(piece, vectors=_rounded(piece.vectors, about.dtype, encoder.name)))


def _read(source: ModelSource) -> tuple[Read, int]:
    """Returns what to read off the encoder and its length: embeddings, and projections where it has heads."""
    head, dim = next(iter(source.heads.values()), None), source.encoder.dim
    if head is None:
        return embedding, dim

    def both(encoder: nn.Module, x: Tensor) -> Tensor:
        vectors = embedding(encoder, x)
        return torch.cat([vectors, project(head, vectors).to(vectors)], 1)

    with torch.no_grad():
        return both, dim + project(head, torch.zeros(1, dim)).shape[1]


def last_map(encoder: Encoder) -> tuple[str, tuple[int, int, int]]:
    """Finds the encoder's last layer with a feature map, and its rows, columns and channels."""
    found = {name: shape for name, shape in encoder.layer_shapes().items() if len(shape) == 3}
    if not found:
        raise UserError("patches", f"{encoder.name} has no feature maps; leave it out")
    name, (channels, rows, columns) = list(found.items())[-1]
    return name, (rows, columns, channels)


def fine_map(encoder: Encoder) -> str:
    """Finds the last layer whose feature map is fine enough to be shown, else the finest map."""
    found = {name: min(shape[1:]) for name, shape in encoder.layer_shapes().items() if len(shape) == 3}
    if not found:
        raise UserError("encoder", f"{encoder.name} has no feature maps")
    fine = [name for name, side in found.items() if side >= FINE]
    return fine[-1] if fine else max(found, key=lambda name: found[name])


def _read_places(layer: str, grid: tuple[int, ...]) -> tuple[Read, int]:
    """Reads the vectors at all positions of a layer, one after the other, and their total length."""

    def places(encoder: Encoder, x: Tensor) -> Tensor:
        return encoder.embed_with_maps(x, [layer])[1][layer].permute(0, 2, 3, 1).flatten(1).float()

    return places, math.prod(grid)


def _rounded(vectors: Tensor, dtype: str, encoder: str) -> Tensor:
    """Converts vectors to the dtype of the file, or refuses numbers that it cannot hold."""
    if not torch.isfinite(vectors).all():
        raise UserError("encoder", f"the embeddings of {encoder} hold NaN or infinite numbers; it has diverged")
    to = getattr(torch, dtype)
    if len(vectors) and vectors.abs().max() > torch.finfo(to).max:
        raise UserError("dtype", f"{dtype} cannot hold the number {vectors.abs().max():g}; choose float32")
    return vectors.to(to)
