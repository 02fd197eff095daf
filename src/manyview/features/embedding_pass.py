"""The embedding pass: what a network says of images, the same wherever it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.data import Dataset, Loader
from manyview.data.reader import Pipeline
from manyview.data.workers import lost_worker
from manyview.encoders import Encoder
from manyview.features.feature_cache import Piece, join_pieces
from manyview.views import AUGMENTATIONS

T = TypeVar("T")
Read = Callable[[Encoder, Tensor], Tensor]
"""What is taken of an encoder that is given images (n, C, size, size): (n, d) float32."""


@torch.no_grad()
def forward(network: nn.Module, images: Tensor | Views, *, read: Callable[..., T]) -> T:
    """Returns `read(network, images)`, computed in eval mode, without gradient and without autocast.

    The images, or all copies of all views, take the device and the dtype of the weights, see `as_input`. Afterwards
    every part of the network is in the mode it was in.
    """
    if isinstance(images, Tensor):
        ready: Tensor | Views = as_input(images, network)
    else:
        ready = {view: [as_input(copy, network) for copy in copies] for view, copies in images.items()}
    devices = {parameter.device.type for parameter in network.parameters()} or {"cpu"}
    modes = {part: part.training for part in network.modules()}  # a part may have been in eval mode alone
    network.eval()
    try:
        with torch.autocast(devices.pop(), enabled=False):
            return read(network, ready)
    finally:
        for part, training in modes.items():
            part.training = training


def as_input(x: Tensor, network: nn.Module) -> Tensor:
    """Moves images to the device and dtype of the weights; on a CPU also to channels_last, which is faster there."""
    x = x.to(next(network.parameters(), x))
    return channels_last(x) if x.device.type == "cpu" else x


def channels_last(x: Tensor) -> Tensor:
    """The memory format in which networks are fastest, of images (N, C, H, W) or patches (N, P, C, h, w)."""
    if x.dim() == 5:
        patches: Tensor = channels_last(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return patches
    return x.contiguous(memory_format=torch.channels_last)


@contextmanager
def on_device(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Moves a network to a device, and then back."""
    home = next(network.parameters()).device
    network.to(device)
    try:
        yield
    finally:
        network.to(home)


@contextmanager
def naming_lost_worker() -> Iterator[None]:
    """Says in one line that a process that reads images is gone; other errors pass."""
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not lost_worker(error):
            raise
        why = "a process that reads images was killed, perhaps for lack of memory; try --workers 1"
        raise UserError("workers", why) from None


def embedding(encoder: nn.Module, x: Tensor) -> Tensor:
    """The embeddings (n, dim) of images, float32."""
    embedded: Tensor = encoder(x)
    return embedded.float()


def project(head: nn.Module, vectors: Tensor) -> Tensor:
    """Gives what a head makes of embeddings (n, dim), at unit length (n, p), float32: what views are compared by."""
    some = next(head.parameters(), vectors)
    return F.normalize(head(vectors.to(some)).float(), dim=1)


def features(
    encoder: Encoder,
    dataset: Dataset,
    views: Pipeline | None = None,
    *,
    batch_size: int = 256,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Embeddings (n, dim), float32 on the CPU, and labels (n,), in the data set's order.

    views  what the encoder sees of each sample; without, the whole picture at the encoder's size ("probe-test")

    To embed the same data again and again, keep one `Loader` of it (shuffle=False, drop_last=False) and `embed` that:
    it decodes once.
    """
    views = AUGMENTATIONS["probe-test"](encoder.options["size"]) if views is None else views
    batch_size = min(batch_size, max(1, len(dataset)))
    loader = Loader(
        dataset, views, batch_size, shuffle=False, drop_last=False, device=device, workers=workers, max_unreadable=1.0
    )
    return embed(encoder, loader)


def embed(encoder: nn.Module, loader: Loader, view: str | None = None) -> tuple[Tensor, Tensor]:
    """`features` of what a loader gives: the first copy of a view, of the first view if it is not named."""
    embedded, labels = [], []
    for batch in loader.epoch(0):
        views = batch.views()
        embedded.append(forward(encoder, views[view or next(iter(views))][0], read=embedding).cpu())
        labels.append(batch.labels.cpu())
    return torch.cat(embedded), torch.cat(labels)


@dataclass(frozen=True, eq=False)
class ImageBatch:
    """Images as an encoder sees them.

    count       of the rows that were asked for
    rows        (n,) of the data set; -1 for an image that only stands in for one that cannot be read
    unreadable  why other rows could not be read, where that is known
    """

    count: int
    rows: Tensor
    images: Tensor
    unreadable: dict[int, str] = field(default_factory=dict)


def loader_batches(loader: Loader, rows: Tensor, view: str) -> Iterator[ImageBatch]:
    """The batches of a view from a loader whose samples are these rows of the data set, in this order."""
    start = 0
    for batch in loader.epoch(0):
        expected = torch.arange(start, start + len(batch))
        itself = batch.index.cpu() == expected
        start += len(batch)
        yield ImageBatch(len(batch), torch.where(itself, rows[expected], -1), batch.views()[view][0])


def embed_pieces(
    encoder: Encoder,
    batches: Iterable[ImageBatch],
    pieces: Iterable[Tensor],
    *,
    read: Read = embedding,
    width: int | None = None,
    advance: Callable[[int], object] = lambda count: None,
) -> Iterator[Piece]:
    """Each piece's vectors, (m, d) float32 on the CPU, from batches that end where a piece ends.

    pieces   the rows of each
    width    of what is read, where that is not the length of an embedding
    advance  is called with how many rows are done
    """
    waiting = iter(batches)
    for piece in pieces:
        done, parts = 0, []
        while done < len(piece):
            batch = next(waiting)
            there, vectors = batch.rows >= 0, torch.empty(0, width or encoder.dim)
            if len(batch.images):
                vectors = forward(encoder, batch.images, read=read).cpu()
            parts.append(Piece(batch.rows[there], vectors[there], batch.unreadable))
            done += batch.count
            advance(batch.count)
        yield join_pieces(parts)
