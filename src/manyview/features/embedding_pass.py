"""An encoder's embeddings of a whole data set, as evaluation wants them: nothing drawn, nothing changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from manyview.data import Dataset, Loader
from manyview.data.workers import Pipeline
from manyview.encoders import Encoder
from manyview.views import AUGMENTATIONS


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


@torch.no_grad()
def embed(encoder: nn.Module, loader: Loader, view: str | None = None) -> tuple[Tensor, Tensor]:
    """`features` of what a loader gives: of the data's reference view, the first look."""
    embedded, labels = [], []
    with still(encoder):
        for batch in loader.epoch(0):
            x = batch.views()[view or loader.dataset.modalities[0]][0]
            x = x.to(next(encoder.parameters(), x).dtype)
            x = x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
            embedded.append(encoder(x).float().cpu())
            labels.append(batch.labels.cpu())
    return torch.cat(embedded), torch.cat(labels)


@contextmanager
def still(module: nn.Module) -> Iterator[None]:
    """In eval mode inside; then every part is as it was, for a part may have been in eval mode alone."""
    was = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in was.items():
            part.training = training
