"""Images as an encoder sees them, read in order by several processes; what cannot be read is named."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from typing import cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.core.errors import UserError
from manyview.data import Dataset, Unreadable
from manyview.data.dataset import Batched
from manyview.data.workers import lost_worker, usual_workers
from manyview.features.embedding_pass import ImageBatch
from manyview.features.preprocess import as_seen
from manyview.views import ViewPipeline


class ImageReader(torch.utils.data.Dataset[ImageBatch]):
    """What a worker does with the rows of a batch: reads them, and leaves out what cannot be read."""

    def __init__(self, dataset: Dataset, pipeline: ViewPipeline) -> None:
        self.dataset, self.pipeline, self.modality = dataset, pipeline, dataset.modalities[0]

    def __getitem__(self, rows: Tensor) -> ImageBatch:
        if isinstance(self.dataset, Batched):
            raw = list(cast(Batched, self.dataset).batch(rows)[self.modality])
            return ImageBatch(len(rows), rows, as_seen(self.pipeline, raw, self.modality))
        kept, unreadable = {}, {}
        for row in rows.tolist():
            try:
                kept[row] = self.dataset[row].modalities[self.modality]
            except (Unreadable, KeyError) as error:
                unreadable[row] = f"it has no {self.modality}" if isinstance(error, KeyError) else str(error)
        images = as_seen(self.pipeline, list(kept.values()), self.modality)
        return ImageBatch(len(rows), torch.tensor(list(kept), dtype=torch.long), images, unreadable)


def read_images(
    reader: ImageReader, batches: Sequence[Tensor], workers: int | None
) -> Generator[ImageBatch, None, None]:
    """What a reader gives for each batch of rows, in order."""
    workers = min(usual_workers() if workers is None else workers, max(0, len(batches) - 1))
    loader: DataLoader[ImageBatch] = DataLoader(
        reader,
        batch_size=None,
        sampler=batches,
        num_workers=workers,
        worker_init_fn=_quietly,
        generator=torch.Generator(),  # the workers' seeds are not to be drawn from what others draw from
    )
    try:
        yield from loader
    except (RuntimeError, ConnectionError, EOFError) as error:
        if not lost_worker(error):
            raise
        raise UserError(
            "workers", "a process that reads images was killed, perhaps for lack of memory; try --workers 1"
        ) from None


def _quietly(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
