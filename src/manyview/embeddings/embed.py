"""Every image of a data set as a vector, in a file. What was stopped goes on where it was."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from manyview import __version__
from manyview.core.errors import UserError
from manyview.core.parallel import resolve_device
from manyview.core.progress import progress_bar
from manyview.core.text import printable
from manyview.data import Dataset
from manyview.data.splits import Labels
from manyview.data.workers import usual_workers
from manyview.embeddings.file_format import DTYPES, About, Embeddings, checked, read
from manyview.embeddings.image_source import ImageSource, one_view, open_images
from manyview.embeddings.model_source import ModelSource, OneModel, open_model, weights_checksum
from manyview.embeddings.partial import PartialEmbeddings
from manyview.features.amounts import check_amounts
from manyview.features.embedding_pass import embed_pieces, on_device
from manyview.features.image_reader import ImageReader, read_images


def embed(
    model: OneModel,
    data: str | Path | Dataset,
    to: str | Path,
    *,
    split: str | None = None,
    root: str | Path | None = None,
    labels: Labels = "auto",
    download: bool = False,
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
    check_amounts(batch_size=batch_size, workers=workers)
    place, images = resolve_device(device), open_images(data, split=split, root=root, labels=labels, download=download)
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
    return path


def _about(source: ModelSource, images: ImageSource, dtype: str, batch_size: int) -> About:
    return About(
        encoder=source.name,
        network=source.encoder.name,
        weights=weights_checksum(source.encoder),
        size=source.size,
        mean=tuple(source.picture.mean),
        std=tuple(source.picture.std),
        view=images.dataset.modalities[0],
        data=images.data,
        options=images.options,
        root=images.root,
        classes=images.classes,
        dtype=dtype,
        batch_size=batch_size,
        fingerprint=images.fingerprint,
        version=__version__,
        broken={},
    )


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
    rounded: Tensor = vectors.to(to)
    return rounded
