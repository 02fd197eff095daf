"""Embeddings of several augmented copies of each image, by a run or any encoder, which figures are drawn from.

>>> found = embed_run(run, images=512, copies=32)
>>> spread(found.vectors)                                                     # JCL's Fig. 3
>>> couplings(found.vectors[:, 0], found.vectors[:, 1], (16, 64, 256))        # q_B by batch size
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.config.component import component
from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Views
from manyview.data import Dataset, Loader
from manyview.data.selection import only_modalities, subset
from manyview.diagnose.measures import batch_measures
from manyview.embeddings.run_epochs import epochs, method_of
from manyview.encoders import Encoder
from manyview.features.embedding_pass import embedding, forward
from manyview.methods import BatchOutputs, Method
from manyview.training import pipelines, run_data
from manyview.training.run import Run
from manyview.views import AUGMENTATIONS, ViewPipeline
from manyview.views.augmentation_recipes import usual_augmentation

if TYPE_CHECKING:
    from manyview.embeddings.model_source import ModelSource

NUMBERS = 2**25  # of the copies that are in memory at a time: 128 MB
PICTURES = 256  # embedded at a time, at most
CHOSEN = 0x100C5  # keeps the draw of images apart from others with the same seed
Read = Callable[..., list[Tensor]]
"""What is taken of a network that is given the views of some images: vectors (b, d) each."""


@dataclass(frozen=True, eq=False)
class ViewEmbeddings:
    """The embeddings of several augmented copies of each of n images, in a random order.

    vectors   (n, a, d) of unit length, float32 on the CPU
    ids       (n,) of the images
    labels    (n,) -1 where there is none
    index     (n,) their rows in `data`
    data      the images
    pipeline  of the copies; with the seed they can be made again, see `picture`
    held_out  whether training has not seen the images
    """

    vectors: Tensor
    ids: Tensor
    labels: Tensor
    index: Tensor
    data: Dataset
    pipeline: ViewPipeline
    seed: int
    held_out: bool

    def picture(self, image: int, copy: int) -> Tensor:
        """Returns the input of vectors[image, copy], (C, size, size) in the data's dtype, not normalised."""
        sample = self.data[int(self.index[image])]
        return next(iter(self.pipeline.prepare(sample.modalities, sample.id, seed=self.seed).values()))[copy]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The measures and embeddings of a run after an epoch; 0 is before training.

    measures    means over batches of held-out images, of the training's batch size, as `batch_measures` names them
    embeddings  of the same copies of the same images in every snapshot
    """

    epoch: int
    measures: dict[str, float]
    embeddings: ViewEmbeddings


def embed_run(
    run: Run,
    *,
    epoch: int | None = None,
    images: int = 512,
    copies: int = 32,
    seed: int = 0,
    own: Dataset | None = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> ViewEmbeddings:
    """Embeds copies of held-out images, augmented as in training, with the run's query encoder and head.

    Of a run with several views the first is embedded.

    epoch   one of `epochs(run)`; by default the last checkpoint
    images  at most this many; training images where none are held out, because there are no labels
    own     the data set of a run on data that the caller passed
    """
    _check(images, copies)
    method, data = method_of(run, epoch).to(device), run_data.open_data(run.config, own)
    view = next(iter(method.views))
    loader = _run_loader(run.config, data, method, {view: copies}, images, seed, device, workers)
    queries = method.towers.queries
    vectors, index, _ = _embed(loader, method, lambda _, views: [queries(copy, view) for copy in views[view][:copies]])
    return _view_embeddings(loader, vectors, index, data.test is not None)


def embed_model(
    model: ModelSource,
    data: Dataset,
    *,
    images: int = 512,
    copies: int = 32,
    seed: int = 0,
    held_out: bool = True,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> ViewEmbeddings:
    """Embeds copies of a data set's images with an encoder without a head, and normalises them to unit length.

    They are augmented as the model's run did it, or else as a run of that size usually does. Of a model with several
    encoders the first is taken, with its own view.
    """
    loader, read = model_copies(model, data, images, copies, seed, device, workers)
    vectors, index, _ = _embed(loader, model.encoder.to(device), read)
    return _view_embeddings(loader, vectors, index, held_out)


def model_copies(
    model: ModelSource,
    data: Dataset,
    images: int,
    copies: int,
    seed: int,
    device: str | torch.device,
    workers: int | None,
) -> tuple[Loader, Read]:
    """Makes the loader of the copies that `embed_model` embeds, and the function that reads their embeddings."""
    _check(images, copies)
    first, encoder = data.modalities[0], next(iter(model.encoders))
    view = encoder or first
    modality = model.modality(encoder, data)
    if modality not in data.modalities:
        raise UserError("data", f"has no view {view!r}, which {model.name} is for; it has {', '.join(data.modalities)}")
    make = AUGMENTATIONS[usual_augmentation(model.size)]
    if model.run is not None:
        make = component(model.run.config, "augmentation")
    augmentations = make(model.size, max(2, copies)).augmentations[:copies]
    middle = model.pipeline(first, view=encoder, of={encoder: modality})
    pipeline = replace(middle, augmentations=augmentations, copies={}).of({view: copies}, views=middle.views)

    def read(encoder: Encoder, views: Views) -> list[Tensor]:
        return [F.normalize(embedding(encoder, copy), dim=1) for copy in views[view]]

    return _loader(only_modalities(data, (modality,)), pipeline, images, seed, device, workers), read


def snapshots(
    run: Run,
    *,
    images: int = 512,
    copies: int = 5,
    seed: int = 0,
    own: Dataset | None = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
) -> Iterator[Snapshot]:
    """Yields the run at each of `epochs(run)`: entropy, alignment, uniformity and coupling, and the embeddings.

    The loss among the measures is computed with the final value of arguments that grow during training.
    """
    _check(images, copies)
    config, data, loader = run.config, run_data.open_data(run.config, own), None
    for epoch in epochs(run):
        method = method_of(run, epoch).to(device)
        if loader is None:  # which decodes the images, once for all epochs
            view = next(iter(method.views))
            counts = {**method.views, view: max(copies, method.views[view])}
            loader = _run_loader(config, data, method, counts, images, seed, device, workers)
        yield _snapshot(epoch, method, loader, copies, config.batch_size, data.test is not None)


def _run_loader(
    config: Config,
    data: run_data.RunData,
    method: Method,
    copies: Mapping[str, int],
    images: int,
    seed: int,
    device: str | torch.device,
    workers: int | None,
) -> Loader:
    """Makes a loader of a run's held-out images with several copies of some views, augmented in turn as in training."""
    training = pipelines.training(config, data.views, method)
    whole = [each for each in training.augmentations if each.patch is None]
    repeated = [whole[number % len(whole)] for number in range(max(copies.values()))]
    pipeline = replace(training, augmentations=repeated, copies={}, holes=False)
    pipeline = pipeline.of(copies, views=data.views, jigsaw=method.jigsaw)
    return _loader(data.train if data.test is None else data.test, pipeline, images, seed, device, workers)


def _loader(
    data: Dataset, pipeline: ViewPipeline, images: int, seed: int, device: str | torch.device, workers: int | None
) -> Loader:
    """Makes a loader of at most so many images in a random order, since data sets are often sorted by class."""
    chosen = order(key(CHOSEN, seed, data.ids))[:images]
    data = data if len(chosen) == len(data) else subset(data, chosen.sort().values)
    size = _batch_size(len(data), pipeline)
    return Loader(data, pipeline, size, seed=seed, drop_last=False, device=device, workers=workers, max_unreadable=1.0)


def _batch_size(images: int, pipeline: ViewPipeline) -> int:
    """Computes how many images fit into memory at a time with all their copies."""
    numbers = sum(3 * each.size**2 for each in pipeline.augmentations)
    return max(1, min(images, PICTURES, NUMBERS // numbers))


def _embed(loader: Loader, network: nn.Module, read: Read) -> tuple[list[Tensor], Tensor, dict[str, Tensor]]:
    """Reads (n, d) each off a network for all images, with their rows in the data and which of them have which view."""
    batches = [(forward(network, batch.views(), read=read), batch) for batch in loader.epoch(0)]
    rows = torch.cat([batch.index for _, batch in batches])
    places = {row: place for place, row in reversed(list(enumerate(rows.tolist())))}
    first = torch.tensor(sorted(places.values()), device=rows.device)  # who stands in for the unreadable is there twice
    vectors = [torch.cat(parts)[first] for parts in zip(*(found for found, _ in batches), strict=True)]
    present = {view: torch.cat([batch.present[view] for _, batch in batches])[first] for view in batches[0][1].present}
    return vectors, rows[first].cpu(), present


def _view_embeddings(loader: Loader, vectors: list[Tensor], index: Tensor, held_out: bool) -> ViewEmbeddings:
    data, pipeline = loader.dataset, loader.pipeline
    assert isinstance(pipeline, ViewPipeline)
    together = torch.stack(vectors, 1).cpu()
    return ViewEmbeddings(together, data.ids[index], loader.labels[index], index, data, pipeline, loader.seed, held_out)


def _snapshot(epoch: int, method: Method, loader: Loader, copies: int, batch: int, held_out: bool) -> Snapshot:
    """Reads in one pass what the terms would be given, and the first view's copies through the query tower."""
    view = next(iter(method.views))

    def read(method: Method, views: Views) -> list[Tensor]:
        return [*method(views).values(), *(method.towers.queries(copy, view) for copy in views[view][:copies])]

    vectors, index, present = _embed(loader, method, read)
    outputs = dict(zip(method.slots, vectors, strict=False))
    ids = loader.dataset.ids[index]
    measures = []
    for rows in torch.arange(len(index)).split(min(batch, len(index))):
        if len(rows) == min(batch, len(index)):  # a smaller batch has other measures
            here = rows.to(loader.device)
            masks = {name: mask[here] for name, mask in present.items()}
            part = {slot: each[here] for slot, each in outputs.items()}
            batch_ids, batch_index = ids[rows].to(loader.device), index[rows].to(loader.device)
            labels = loader.labels[index[rows]].to(loader.device)
            given = BatchOutputs(part, batch_ids, batch_index, masks, labels=labels)
            measures.append(batch_measures(method, given))
    means = {name: sum(each[name] for each in measures) / len(measures) for name in measures[0]}
    return Snapshot(epoch, means, _view_embeddings(loader, vectors[-copies:], index, held_out))


def _check(images: int, copies: int) -> None:
    if images < 2 or copies < 1:
        raise UserError("images and copies", f"expected at least 2 and 1, got {images} and {copies}")
