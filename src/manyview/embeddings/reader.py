"""Images as an encoder sees them, read in order by several processes; what cannot be read is named."""

from __future__ import annotations

import signal
from collections.abc import Generator, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from manyview.core.errors import UserError
from manyview.data import Dataset, Unreadable
from manyview.data.dataset import Batched
from manyview.data.workers import lost_worker, usual_workers
from manyview.views import ViewPipeline


class Read(NamedTuple):
    """Images of a batch that could be read, as the encoder sees them, and why others could not."""

    rows: list[int]
    x: Tensor
    broken: dict[int, str]


class Reader(torch.utils.data.Dataset[Read]):
    """What a worker does with the rows of a batch."""

    def __init__(self, dataset: Dataset, stack: ViewPipeline) -> None:
        self.dataset, self.stack, self.view = dataset, stack, dataset.modalities[0]

    def __getitem__(self, rows: Sequence[int]) -> Read:
        if isinstance(self.dataset, Batched):
            raw = list(cast(Batched, self.dataset).batch(torch.tensor(rows))[self.view])
            return Read(list(rows), self._seen(raw), {})
        kept, broken = {}, {}
        for row in rows:
            try:
                kept[row] = self.dataset[row].modalities[self.view]
            except (Unreadable, KeyError) as error:
                broken[row] = f"it has no {self.view}" if isinstance(error, KeyError) else str(error)
        return Read(list(kept), self._seen(list(kept.values())), broken)

    def _seen(self, raw: list[Tensor]) -> Tensor:
        """(n, C, size, size), each picture as `Preprocess` makes it; those of one size at once."""
        if len({(each.shape, each.dtype) for each in raw}) == 1 and self.stack.at_once(raw[0][None]):
            return self._at_once(torch.stack(raw))
        each = [self._at_once(one[None]) if self.stack.at_once(one[None]) else self._alone(one) for one in raw]
        return torch.cat(each) if each else torch.empty(0)

    def _at_once(self, raw: Tensor) -> Tensor:
        return self.stack({self.view: raw}, torch.zeros(len(raw), dtype=torch.long))[self.view][0]

    def _alone(self, raw: Tensor) -> Tensor:
        views = self.stack.prepare({self.view: raw}, 0)[self.view]
        return self.stack.finish({self.view: [views[0][None]]}, torch.zeros(1, dtype=torch.long))[self.view][0]


def reads(reader: Reader, batches: list[range], workers: int | None) -> Generator[Read, None, None]:
    """What a reader gives for each batch of rows, in order."""
    workers = min(usual_workers() if workers is None else workers, max(0, len(batches) - 1))
    loader: DataLoader[Read] = DataLoader(
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
            None, "a process that reads images was killed, perhaps for lack of memory; try --workers 1"
        ) from None


def _quietly(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
