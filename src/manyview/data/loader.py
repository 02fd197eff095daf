"""The loader makes batches of views; what is drawn for a sample (its place, its crops) depends on (seed, epoch, id).

So batches are the same for any number of workers or processes, and an epoch can be entered in its middle. Small
pictures of one size that fit into memory are decoded before the first epoch, and become views a whole batch at once.
Others go through worker processes that decode each file once for all its views, and hold as many as fit for the next
epochs. Between these two ways, crops differ by the rounding to 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Batch, Views
from manyview.data.dataset import Dataset
from manyview.data.epoch import Epoch
from manyview.data.held import hold
from manyview.data.reader import Collated, Pipeline, Reader
from manyview.data.slots import EpochRows
from manyview.data.workers import patiently, start_workers

SHUFFLE = 0x5EED  # key of the order of an epoch, so that it is drawn apart from what the views draw


class Loader:
    """Gives epochs of batches of a data set, with the views that a pipeline makes.

    >>> loader = Loader(dataset, pipeline, batch_size=256)
    >>> for batch in loader.epoch(0):
    ...     first, second = batch.views()["image"]

    batch_size      of all processes together; process `rank` of `world` gets its share
    shuffle         anew each epoch; False keeps the data set's order
    drop_last       leave out a last batch that is not full
    workers         processes that make views, where that is not done at once; None: one a core
    memory          bytes that decoded data may take; None: a quarter of the machine's, 0: nothing is held
    max_unreadable  the share of unreadable samples above which the loader gives up
    examples        a picture (C, H, W) of each modality, for those that no sample has: their views are zeros

    Loaders of the same data set share what they hold.

    In place of a sample that cannot be read comes the next one that can, so that batches stay full; one of them may
    then be there twice. They are listed in `unreadable`, as far as this process has met them.
    """

    def __init__(
        self,
        dataset: Dataset,
        pipeline: Pipeline,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        workers: int | None = None,
        device: str | torch.device = "cpu",
        rank: int = 0,
        world: int = 1,
        memory: int | None = None,
        max_unreadable: float = 0.05,
        examples: Mapping[str, Tensor] | None = None,
    ) -> None:
        if not isinstance(dataset, Dataset):
            what = f"{type(dataset).__name__} is none; open_data(name) makes one, TorchDataset wraps one of torch's"
            raise UserError("dataset", what)
        if not hasattr(pipeline, "plan"):
            what = f"{type(pipeline).__name__} is none; give AUGMENTATIONS[name](size), or TransformPipeline(transform)"
            raise UserError("pipeline", what)
        self.dataset, self.pipeline, self.batch_size = dataset, pipeline, batch_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        self.rank, self.world, self.device, self.max_unreadable = rank, world, torch.device(device), max_unreadable
        self.unreadable: dict[int, str] = {}
        self.labels = torch.full((len(dataset),), -1) if dataset.labels is None else dataset.labels
        _check(self)
        used = set(pipeline.sources(dataset.modalities).values())
        self._shared = hold(dataset, used, memory, examples, self._at_once)
        self._decoded, self._cache = self._shared.decoded, self._shared.cache
        self.at_once = self._decoded is not None
        self._note({} if self._decoded is None else self._decoded.unreadable)
        self._replacement = _next_readable(len(dataset), self.unreadable)
        self._rows: EpochRows = []
        self._epochs = 0
        colour, pinned = self.device.type == "cpu", self.device.type == "cuda"
        reader = Reader(dataset, pipeline, seed, colour=colour, examples=examples, cache=self._cache)
        share = batch_size // world
        self._stream = None if self.at_once else start_workers(reader, self._rows, share, workers, pinned=pinned)
        self._read = reader.read

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return self._epoch.batches

    def seen(self, batches: int) -> int:
        """How many samples so many batches hold, counted from the beginning of an epoch."""
        return self._epoch.seen_in(batches)

    @property
    def held(self) -> tuple[int, int]:
        """How many samples need not be decoded again, and the bytes that they take."""
        if self._decoded is not None:
            return len(self.dataset), sum(images.nbytes for images in self._decoded.pixels.values())
        return (0, 0) if self._cache is None else (len(self._cache), self._cache.bytes)

    @property
    def _epoch(self) -> Epoch:
        return Epoch(len(self.dataset), self.batch_size, self.drop_last)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """Gives the batches of an epoch, from the one numbered `start`. One epoch at a time."""
        if not _is_whole(number) or number < 0:
            raise UserError("epoch", f"expected a whole number from 0, got {number!r}")
        if not _is_whole(start) or not 0 <= start <= len(self):
            raise UserError("start", f"an epoch has batches 0 to {len(self) - 1}, got {start!r}")
        if self._stream is None:
            for rows in self.rows(number, start):
                yield self._from_memory(number, rows)
            return
        self._epochs += 1
        this = self._epochs
        self._rows[:] = [[(number, row) for row in rows.tolist()] for rows in self.rows(number, start)]
        for collated in patiently(self._stream.loader, self._read):
            if this != self._epochs:
                raise RuntimeError(f"epoch {number} cannot go on: another one was begun with the same loader")
            self._stream.dispatcher.received(collated.slot, collated.views)
            self._note(collated.unreadable)
            if collated.unreadable and not len(collated.ids):
                (row, reason), *_ = collated.unreadable.items()
                found = f"{len(collated.unreadable)} samples in a row cannot be read"
                raise TooManyUnreadable(None, f"{found}, from {self.dataset.name(row)}: {reason}")
            yield self._from_workers(number, collated)

    def rows(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The rows of the data set that make up each batch of this process."""
        ordered = self.order(epoch)
        for number in range(start, len(self)):
            whole = ordered[number * self.batch_size : (number + 1) * self.batch_size]
            yield whole.tensor_split(self.world)[self.rank]

    def order(self, epoch: int) -> Tensor:
        """All rows in the order they are seen in an epoch, over all processes."""
        if not self.shuffle:
            return torch.arange(len(self.dataset))
        return order(key(SHUFFLE, self.seed, epoch, self.dataset.ids))

    def _at_once(self, none: Mapping[str, Tensor]) -> bool:
        """Tells whether views are made a whole batch at once, of pictures like these, which are none."""
        return all(self.pipeline.at_once(none[name].to(self.device)) for name in self.pipeline.sources(none).values())

    def _from_memory(self, epoch: int, rows: Tensor) -> Batch:
        assert self._decoded is not None
        decoded, index = self._decoded, self._replacement[rows]
        ids, used = self.dataset.ids[index], set(self.pipeline.sources(decoded.pixels).values())

        def make(rows: slice) -> Views:
            raw = {name: all[index[rows]].to(self.device) for name, all in decoded.pixels.items() if name in used}
            return self.pipeline(raw, ids[rows], seed=self.seed, epoch=epoch)

        return self._batch(ids, index, {name: there[index] for name, there in decoded.present.items()}, make)

    def _from_workers(self, epoch: int, collated: Collated) -> Batch:
        ids, late = collated.ids, self.device.type != "cpu"

        def make(rows: slice) -> Views:
            here = {
                name: [copy[rows].to(self.device, non_blocking=True) for copy in copies]
                for name, copies in collated.views.items()
            }
            return self.pipeline.finish(here, ids[rows], seed=self.seed, epoch=epoch, colour=late)

        return self._batch(ids, collated.rows, collated.present, make)

    def _batch(self, ids: Tensor, index: Tensor, present: dict[str, Tensor], make: Callable[[slice], Views]) -> Batch:
        sources = self.pipeline.sources(present)
        several = len(set(sources.values())) > 1  # else a sample without the only one is not in the batch
        there = {view: present[name].to(self.device) for view, name in sources.items()} if several else {}
        return Batch(ids.to(self.device), index.to(self.device), self.labels[index].to(self.device), there, make)

    def _note(self, unreadable: dict[int, str]) -> None:
        """Adds to what could not be read; too much of it is an error."""
        self.unreadable |= unreadable
        if len(self.unreadable) > self.max_unreadable * len(self.dataset):
            some = "; ".join(f"{self.dataset.name(i)}: {reason}" for i, reason in list(self.unreadable.items())[:3])
            found = f"{len(self.unreadable)} of {len(self.dataset)} samples cannot be read"
            most = f"more than {100 * self.max_unreadable:.3g}% of them ({some}); mend the files"
            raise TooManyUnreadable("max_unreadable", f"{found}, {most}")


class TooManyUnreadable(UserError):
    """More samples than allowed could not be read."""


def _next_readable(count: int, unreadable: Iterable[int]) -> Tensor:
    """Gives (count,) each row, or the next readable one after it, round the end."""
    found = torch.arange(count)
    for row in sorted(unreadable, reverse=True) * 2:  # twice round, for those before the end
        found[row] = found[(row + 1) % count]
    return found


def _check(loader: Loader) -> None:
    for name in ("batch_size", "seed", "rank", "world"):
        if not _is_whole(getattr(loader, name)):
            raise UserError(name, f"expected a whole number, got {getattr(loader, name)!r}")
    if loader.world < 1:
        raise UserError("world", f"expected at least one process, got {loader.world}")
    if loader.batch_size < 1 or loader.batch_size % loader.world:
        what = f"at least 1, and a multiple of the {loader.world} processes"
        raise UserError("batch_size", f"expected {what}, got {loader.batch_size}")
    if not 0 <= loader.rank < loader.world:
        raise UserError("rank", f"expected a number from 0 to world - 1 = {loader.world - 1}, got {loader.rank}")
    if not 0 <= loader.max_unreadable <= 1:
        raise UserError("max_unreadable", f"expected a share between 0 and 1, got {loader.max_unreadable}")
    if len(loader.dataset) == 0:
        raise UserError("dataset", "it is empty; give one with samples")
    if len(loader.dataset) < 2 and len(loader) == 0:
        raise UserError(None, "data: one image cannot be contrasted with others; give more")
    if len(loader) == 0:
        count = len(loader.dataset)
        few = f"is more than the {count} samples: give more images, or --batch-size {count} or less"
        raise UserError(None, f"batch_size={loader.batch_size} {few}")
    loader.pipeline.sources(loader.dataset.modalities)  # refuses what the data does not have


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
