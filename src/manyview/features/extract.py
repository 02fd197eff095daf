"""An encoder looks at a data set: piece by piece, in order, nothing drawn, nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from manyview.data import Batch, Loader
from manyview.encoders import Encoder
from manyview.features.embedding_pass import still
from manyview.features.feature_cache import Made

Read = Callable[[Encoder, Tensor], Tensor]
"""What is taken of an encoder that looks at (n, C, size, size): (n, d)."""


def embedding(encoder: Encoder, x: Tensor) -> Tensor:
    embedded: Tensor = encoder(x)
    return embedded


@torch.no_grad()
def extract(
    encoder: Encoder, read: Read, loader: Loader, pieces: list[Tensor], advance: Callable[[int], object]
) -> Iterator[Made]:
    """Each piece's rows and what is seen of them, (m,) and (m, d) float32 on the CPU.

    The loader gives exactly the rows of the pieces, in that order, in batches that end where a piece ends. A stand-in
    for an image that cannot be read is left out.
    """
    start, batches = 0, loader.epoch(0)
    with _at_work(encoder, loader.device):
        for piece in pieces:
            index: list[Tensor] = []
            seen: list[Tensor] = []
            while sum(len(each) for each in index) < len(piece):
                batch = next(batches)
                index.append(batch.index.cpu())
                seen.append(_seen(encoder, read, batch, loader.dataset.modalities[0]))
                advance(len(batch))
            itself = torch.cat(index) == torch.arange(start, start + len(piece))
            start += len(piece)
            yield piece[itself], torch.cat(seen)[itself]


def _seen(encoder: Encoder, read: Read, batch: Batch, view: str) -> Tensor:
    x = batch.views()[view][0]
    x = x.to(next(encoder.parameters(), x).dtype)
    x = x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
    return read(encoder, x).float().cpu()


@contextmanager
def _at_work(encoder: Encoder, device: torch.device) -> Iterator[None]:
    """In eval mode and on the device; then as it was."""
    home = next(encoder.parameters()).device
    try:
        with still(encoder.to(device)):
            yield
    finally:
        encoder.to(home)
