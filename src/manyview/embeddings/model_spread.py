"""The agreement of augmented copies over any number of images, embedded batch by batch: JCL's Fig. 3 in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from manyview.core.progress import progress_bar
from manyview.data import Dataset
from manyview.diagnose import Spread, spread
from manyview.embeddings.view_embeddings import model_copies
from manyview.features.embedding_pass import forward

if TYPE_CHECKING:
    from manyview.embeddings.model_source import ModelSource


def model_spread(
    model: ModelSource,
    data: Dataset,
    *,
    images: int = 32768,
    copies: int = 32,
    seed: int = 0,
    device: str | torch.device = "cpu",
    workers: int | None = None,
    shown: bool = False,
) -> Spread:
    """Computes `spread` of what `embed_model` embeds without holding all of it: JCL's Fig. 3 has 32,768 x 32 copies.

    A picture that cannot be read is left out, and so is its stand-in. `shown`: a progress bar is shown on stderr.
    """
    loader, read = model_copies(model, data, images, copies, seed, device, workers)
    encoder, met = model.encoder.to(device), set[int]()
    similarities, variances, done = torch.empty(len(loader.dataset)), torch.empty(len(loader.dataset)), 0
    with progress_bar(len(loader.dataset), f"{copies} copies each", shown=shown, lines=True) as advance:
        for batch in loader.epoch(0):
            together = torch.stack(forward(encoder, batch.views(), read=read), 1).cpu()  # (b, copies, d)
            advance(len(batch))
            if not (new := _unmet(batch.index.tolist(), met)):
                continue
            found, place = spread(together[new]), slice(done, done := done + len(new))
            similarities[place], variances[place] = found.similarity, found.variance
    return Spread(similarities[:done], variances[:done])  # as no list: small tensors that stay split the memory up


def _unmet(images: list[int], met: set[int]) -> list[int]:
    """Returns the rows that were not met before and records them: an image that stands in for another comes twice."""
    places = []
    for place, image in enumerate(images):
        if image not in met:
            met.add(image)
            places.append(place)
    return places
