"""Every image of a data set as a vector, in a file. What was stopped goes on where it was."""

from __future__ import annotations

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from manyview import __version__
from manyview.core.errors import UserError
from manyview.core.progress import progress_bar
from manyview.core.text import printable
from manyview.data import Dataset
from manyview.data.splits import Labels
from manyview.data.workers import usual_workers
from manyview.embeddings.file_format import DTYPES, About, Array, Embeddings, checked, read
from manyview.embeddings.images import Images, fingerprint, images, one_view
from manyview.embeddings.model_source import ModelSource, What, subject, weights_of
from manyview.embeddings.partial import PartialEmbeddings
from manyview.embeddings.reader import Reader, reads
from manyview.encoders import Encoder
from manyview.features.amounts import check_amounts


def embed(
    what: What | ModelSource,
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

    what      a run's folder, an encoder, a file or the name of one, as `model_source.subject` takes it
    split     of the data; None: all of a folder, the training split of a named set
    dtype     of a vector, float32 or float16
    progress  is shown on stderr
    encoder   size, weights, pretrained, stem: which one is meant, where `what` is a name

    Pieces gather in a folder beside the file, `embeddings.npz.part`. The same call after an interruption goes on from
    there, and ends with the same bytes; one with other settings, encoder or images is refused.

    >>> embeddings = embed("runs/dcl-photos-1a2b3c", "photos", "embeddings.npz")
    """
    path = target(to)
    if dtype not in DTYPES:
        raise UserError("dtype", f"expected {' or '.join(DTYPES)}, got {dtype!r}")
    check_amounts(batch_size=batch_size, workers=workers)
    place, found = _device(device), images(data, split=split, root=root, labels=labels, download=download)
    who = one_encoder(what, **({} if isinstance(what, ModelSource) else {"like": found.dataset, **encoder}))
    if not who.trained and not isinstance(what, ModelSource):
        raise UserError("encoder", f"the name {who.name} alone has random weights; give --pretrained or --weights FILE")
    found = one_view(found, *who.encoders)
    unfinished = PartialEmbeddings(path, _about(who, found, dtype, batch_size), found)
    with unfinished.alone():
        if not unfinished.complete():
            _fill(unfinished, who, place, workers, progress)
            unfinished.join()
    return read(path)


def one_encoder(what: What | ModelSource, **options: Any) -> ModelSource:
    """A subject of one encoder; the options are those of `subject`."""
    who = subject(what, **options)
    if len(who.encoders) != 1:
        raise UserError(None, f"{who.name}: expected one encoder, got {len(who.encoders)}; give one at a time")
    return who


def target(to: str | Path) -> Path:
    """A file that can be written."""
    path = checked(to)
    if not path.parent.is_dir():
        raise UserError("to", f"there is no folder {printable(str(path.parent))}; make it first")
    if path.is_dir():
        raise UserError("to", f"{printable(str(path))} is a folder; give the name of a file in it")
    return path


def _device(name: str) -> torch.device:
    name = ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UserError("device", f"{name!r} cannot be used: {str(error).splitlines()[0]}") from None


def _about(who: ModelSource, found: Images, dtype: str, batch_size: int) -> About:
    return About(
        encoder=who.name,
        network=who.encoder.name,
        weights=weights_of(who.encoder),
        size=who.size,
        mean=tuple(who.picture.mean),
        std=tuple(who.picture.std),
        view=found.dataset.modalities[0],
        data=found.data,
        options=found.options,
        root=found.root,
        classes=found.classes,
        dtype=dtype,
        batch_size=batch_size,
        fingerprint=fingerprint(found),
        version=__version__,
        broken={},
    )


def _fill(
    unfinished: PartialEmbeddings, who: ModelSource, device: torch.device, workers: int | None, shown: bool
) -> None:
    """Makes the pieces that are missing, in order."""
    encoder = copy.deepcopy(who.encoder).eval().to(device)  # a person's own stays as it is
    dataset, dtype, todo = unfinished.images.dataset, unfinished.about.dtype, unfinished.missing()
    batches = [rows for piece in todo.values() for rows in piece]
    done = len(dataset) - sum(map(len, batches))
    if workers is None and device.type == "cpu":
        workers = max(1, usual_workers() // 2)  # the encoder wants cores as well
    reading = reads(Reader(dataset, who.stack(view=dataset.modalities[0])), batches, workers)
    with (
        closing(reading) as every,
        progress_bar(len(dataset), "embedding", start=done, shown=shown, lines=True) as advance,
    ):
        for number, piece in todo.items():
            rows: list[int] = []
            broken: dict[int, str] = {}
            vectors: list[Array] = []
            for batch, got in zip(piece, every, strict=False):
                vectors.append(_vectors(encoder, got.x, dtype, device))
                rows, broken = rows + got.rows, broken | got.broken
                advance(len(batch))
            unfinished.save(number, rows, np.concatenate(vectors), broken)


@torch.no_grad()
def _vectors(encoder: Encoder, x: Tensor, dtype: str, device: torch.device) -> Array:
    """(n, dim), as evaluation computes them."""
    if not len(x):
        return np.empty((0, encoder.dim), dtype=dtype)
    x = x.to(device, next(encoder.parameters(), x).dtype)
    x = x.contiguous(memory_format=torch.channels_last) if device.type == "cpu" else x
    vectors = encoder(x).float().cpu()
    if not torch.isfinite(vectors).all():
        raise UserError(None, f"{encoder.name}: its embeddings hold NaN or infinite numbers; the encoder has diverged")
    if vectors.abs().max() > torch.finfo(getattr(torch, dtype)).max:
        raise UserError("dtype", f"{dtype} cannot hold the number {vectors.abs().max():g}; choose float32")
    made: Array = vectors.numpy().astype(dtype)
    return made
