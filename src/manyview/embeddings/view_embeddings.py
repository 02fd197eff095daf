"""From a run, or from any encoder, to the embeddings that the figures are made of.

>>> seen = looks.of_run(run, images=512, looks=32)
>>> spread(seen.vectors)                                                    # JCL's Fig. 3
>>> couplings(seen.vectors[:, 0], seen.vectors[:, 1], (16, 64, 256))        # q_B by batch size
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data import Dataset, Loader
from manyview.data.selection import only_modalities, subset
from manyview.diagnose.validation import seen_by_loss
from manyview.features.embedding_pass import still
from manyview.methods import Method
from manyview.training import build
from manyview.training.checkpoint import EPOCH, Checkpoints, State, read
from manyview.training.run import CHECKPOINTS, Run
from manyview.views import AUGMENTATIONS, ViewPipeline

if TYPE_CHECKING:
    from manyview.embeddings.model_source import ModelSource

NUMBERS = 2**25  # of the looks that are in memory at a time: 128 MB
PICTURES = 256  # embedded at a time, at most
CHOSEN = 0x100C5  # keeps the draw of images apart from others with the same seed
See = Callable[[list[Tensor]], list[Tensor]]
"""The looks of some images, (b, C, H, W) each, to vectors (b, d)."""


@dataclass(frozen=True, eq=False)
class ViewEmbeddings:
    """Several looks at each of n images, embedded, in a drawn order.

    vectors   (n, a, d) of unit length, float32 on the CPU
    ids       (n,) of the images
    labels    (n,) -1 where there is none
    index     (n,) their rows in `data`
    data      the images
    stack     the looks; with the seed they can be made again, see `picture`
    held_out  whether training has not seen the images
    """

    vectors: Tensor
    ids: Tensor
    labels: Tensor
    index: Tensor
    data: Dataset
    stack: ViewPipeline
    seed: int
    held_out: bool

    def picture(self, image: int, look: int) -> Tensor:
        """What was embedded as vectors[image, look], (C, size, size) in the data's dtype, not normalised."""
        sample = self.data[int(self.index[image])]
        return self.stack.prepare(sample.modalities, sample.id, seed=self.seed)[self.data.modalities[0]][look]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A run as it was after an epoch; 0 is before training.

    measures  means over batches of images kept aside, of the training's batch size, by the names of `seen_by_loss`
    looks     the same looks at the same images at every moment
    """

    epoch: int
    measures: dict[str, float]
    looks: ViewEmbeddings


def of_run(
    run: Run,
    *,
    epoch: int | None = None,
    images: int = 512,
    looks: int = 32,
    seed: int = 0,
    own: Dataset | None = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> ViewEmbeddings:
    """Looks at images kept aside, made as training makes them, through the run's query encoder and head.

    epoch   one of `epochs(run)`; without, the last checkpoint
    images  at most so many; training images where none are kept aside, because there are no labels
    own     the data set of a run on one's own
    """
    _check(images, looks)
    config, method = run.config, method_of(run, epoch).to(device)
    data, held_out = _kept_aside(config, own, images, seed)
    loader = _loader(data, _training_stack(config, method, looks), seed, device, workers)
    vectors, which = _through(loader, lambda seen: [method.towers.queries(look) for look in seen])
    return _looks(loader, vectors, which, held_out)


def of_subject(
    subject: ModelSource,
    data: Dataset,
    *,
    images: int = 512,
    looks: int = 32,
    seed: int = 0,
    held_out: bool = True,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> ViewEmbeddings:
    """Looks at images of a data set through an encoder without a head, made unit length.

    They are made as the subject's run made them, or else as a run of that size usually does. Of a subject with several
    encoders the first is taken, with the raw view that it is for.
    """
    _check(images, looks)
    view = next(iter(subject.encoders)) or data.modalities[0]
    if view not in data.modalities:
        raise UserError(
            "data", f"has no view {view!r}, which {subject.name} looks at; it has {', '.join(data.modalities)}"
        )
    data = _some(only_modalities(data, (view,)), images, seed)
    loader = _loader(data, _usual_stack(subject, looks), seed, device, workers)
    encoder = subject.encoder.to(device)
    with still(encoder):
        vectors, which = _through(loader, lambda seen: [F.normalize(encoder(look).float(), dim=1) for look in seen])
    return _looks(loader, vectors, which, held_out)


def moments(
    run: Run,
    *,
    images: int = 512,
    looks: int = 5,
    seed: int = 0,
    own: Dataset | None = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> Iterator[Snapshot]:
    """The run at each of `epochs(run)`: entropy, alignment, uniformity and coupling by epoch, and looks for the rest.

    The measures' loss is that of a run at its end, where a loss has a part that grows.
    """
    _check(images, looks)
    config, loader = run.config, None
    data, held_out = _kept_aside(config, own, images, seed)
    for epoch in epochs(run):
        method = method_of(run, epoch).to(device)
        if loader is None:  # which decodes the images, once for all epochs
            stack = _training_stack(config, method, max(looks, method.looks))
            loader = _loader(data, stack, seed, device, workers)
        yield _moment(epoch, method, loader, looks, config.batch_size, held_out)


def epochs(run: Run) -> list[int]:
    """After which a run can be looked at: 0 before training, the snapshots, and the last checkpoint's."""
    return sorted({0, *_snapshots(run), _epoch(_last(run), run.config)})


def method_of(run: Run, epoch: int | None = None) -> Method:
    """The method after an epoch (see `epochs`), or of the last checkpoint, in eval mode on the CPU."""
    config, state = run.config, _state(run, epoch)
    with torch.random.fork_rng():  # a method is drawn from its seed, which is no business of who looks at one
        method = build.method(config, state["channels"])
    if epoch != 0:
        method.load_state_dict(state["method"])
    return method.eval().requires_grad_(False)


def _state(run: Run, epoch: int | None) -> State:
    snapshots = _snapshots(run)
    if epoch is not None and epoch in snapshots:
        return read(snapshots[epoch])
    last = _last(run)
    if epoch not in (None, 0, _epoch(last, run.config)):
        there = ", ".join(map(str, epochs(run)))
        raise UserError("epoch", f"{run.folder} has {there}, not {epoch}; a run keeps those of --snapshots")
    return last


def _last(run: Run) -> State:
    found = Checkpoints(run.folder / CHECKPOINTS).latest()
    if found is None:
        raise UserError("run", f"{run.folder} has no checkpoint; its encoder alone can still be looked at (of_subject)")
    return found[0]


def _snapshots(run: Run) -> dict[int, Path]:
    files = (run.folder / CHECKPOINTS).glob("*")
    return {int(match[1]): file for file in files if (match := EPOCH.fullmatch(file.name))}


def _epoch(state: State, config: Config) -> int:
    """Of a checkpoint, counting one that is not over."""
    images, step = int(state["data"][0]), int(state["progress"]["step"])
    return -(-step // max(1, images // config.batch_size))


def _kept_aside(config: Config, own: Dataset | None, count: int, seed: int) -> tuple[Dataset, bool]:
    found = build.images(config, own)
    data = found.train if found.test is None else found.test
    return _some(data, count, seed), found.test is not None


def _some(data: Dataset, count: int, seed: int) -> Dataset:
    chosen = order(key(CHOSEN, seed, data.ids))[:count]
    return data if len(chosen) == len(data) else subset(data, chosen.sort().values)


def _training_stack(config: Config, method: Method, count: int) -> ViewPipeline:
    """Training's looks, over and over until there are enough."""
    own = build.stack(config, method.looks)
    return ViewPipeline(
        [own.augmentations[number % len(own)] for number in range(count)], own.modalities, picture=own.picture
    )


def _usual_stack(subject: ModelSource, count: int) -> ViewPipeline:
    if subject.run is not None:
        own = build.stack(subject.run.config, max(2, count))
    else:
        own = AUGMENTATIONS["custom" if subject.size <= build.SMALL else "moco-v2"](subject.size, count)
    return ViewPipeline(own.augmentations[:count], subject.modalities, picture=subject.picture)


def _loader(data: Dataset, stack: ViewPipeline, seed: int, device: str | torch.device, workers: int | None) -> Loader:
    """In a drawn order, since data sets are often sorted by class."""
    size = _at_a_time(len(data), stack)
    return Loader(data, stack, size, seed=seed, drop_last=False, device=device, workers=workers, max_unreadable=1.0)


def _at_a_time(images: int, stack: ViewPipeline) -> int:
    """So many that all their looks fit into memory."""
    numbers = sum(3 * look.size**2 for look in stack.augmentations)
    return max(1, min(images, PICTURES, NUMBERS // numbers))


class Which(NamedTuple):
    """Which images were looked at, (n,) each."""

    ids: Tensor
    labels: Tensor
    rows: Tensor


@torch.no_grad()
def _through(loader: Loader, see: See) -> tuple[list[Tensor], Which]:
    """What a network says of all images, (n, d) each, and which they are."""
    vectors, which = [], []
    for batch in loader.epoch(0):
        looks = batch.views()[loader.dataset.modalities[0]]
        vectors.append(see([look.contiguous(memory_format=torch.channels_last) for look in looks]))
        which.append((batch.ids, batch.labels, batch.index))
    found = Which(*(torch.cat(parts) for parts in zip(*which, strict=True)))
    once = _once(found.rows)
    return [torch.cat(parts)[once] for parts in zip(*vectors, strict=True)], Which(*(each[once] for each in found))


def _once(rows: Tensor) -> Tensor:
    """Places of the first of each: an image that stands in for an unreadable one is there twice."""
    places = {row: place for place, row in reversed(list(enumerate(rows.tolist())))}
    return torch.tensor(sorted(places.values()), device=rows.device)


def _looks(loader: Loader, vectors: list[Tensor], which: Which, held_out: bool) -> ViewEmbeddings:
    stack = loader.pipeline
    assert isinstance(stack, ViewPipeline)
    ids, labels, index = (each.cpu() for each in which)
    return ViewEmbeddings(
        torch.stack(vectors, 1).cpu(), ids, labels, index, loader.dataset, stack, loader.seed, held_out
    )


def _moment(epoch: int, method: Method, loader: Loader, looks: int, batch: int, held_out: bool) -> Snapshot:
    """In one pass: what the loss would be given, and the looks through the query tower."""

    def see(seen: list[Tensor]) -> list[Tensor]:
        queries, keys = method(seen[: method.looks], 0)
        return [*queries, *keys, *(method.towers.queries(look) for look in seen[:looks])]

    vectors, which = _through(loader, see)
    given, embedded = vectors[:-looks], vectors[-looks:]
    batch = min(batch, len(which.ids))
    measures = [
        _measures(method, [each[start : start + batch] for each in given], which.ids[start : start + batch])
        for start in range(0, len(which.ids) - batch + 1, batch)
    ]
    means = {name: sum(each[name] for each in measures) / len(measures) for name in measures[0]}
    return Snapshot(epoch, means, _looks(loader, embedded, which, held_out))


def _measures(method: Method, given: list[Tensor], ids: Tensor) -> dict[str, float]:
    queries = len(method.queries)
    return seen_by_loss(method, given[:queries], given[queries:], ids)


def _check(images: int, looks: int) -> None:
    if images < 2 or looks < 1:
        raise UserError("images and looks", f"expected at least 2 and 1, got {images} and {looks}")
