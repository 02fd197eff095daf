"""What a classifier sits on: copies of the model's encoders, or one of their layers, and the images they get."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.data.reader import Pipeline
from manyview.embeddings.model_source import ModelSource
from manyview.encoders import Encoder, create, dense_convolutions
from manyview.evaluate.classifier import Batches
from manyview.evaluate.task import Split, Task
from manyview.features.embedding_pass import as_input, embedding, forward

LAYER_DIMS = 9600  # of a feature map that a classifier gets at most: the layers of CMC's AlexNet have 9,216 to 9,600


class ViewBackbone(nn.Module):
    """Views to features (n, d): of one encoder, or of several side by side, as CMC concatenates them.

    encoders  by the view that each is for
    layer     None: embeddings
    """

    def __init__(self, encoders: Mapping[str, Encoder], layer: str | None = None) -> None:
        super().__init__()
        self.views, self.layer = tuple(encoders), layer
        self.encoders = nn.ModuleList(encoders.values())

    @property
    def dim(self) -> int:
        """The length of the embeddings, side by side."""
        return sum(encoder.dim for encoder in self.encoders if isinstance(encoder, Encoder))

    def forward(self, views: Views) -> Tensor:
        pairs = zip(self.views, self.encoders, strict=True)
        return torch.cat([self._features(encoder, views[view][0]) for view, encoder in pairs], 1)

    def _features(self, encoder: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(encoder, Encoder)
        return read_layer(self.layer, encoder, as_input(x, encoder))


def read_layer(layer: str | None, encoder: Encoder, x: Tensor) -> Tensor:
    """(n, d) embeddings, or a layer's output, as `grid_means` of at most `LAYER_DIMS` numbers."""
    return embedding(encoder, x) if layer is None else grid_means(encoder.layers(x)[layer], LAYER_DIMS).float()


def grid_means(output: Tensor, dims: int) -> Tensor:
    """(n, d) of a layer's output: the means of a map over the finest square grid that gives at most `dims` numbers.

    A map of more channels is averaged to one number a channel; what is no map stays as it is.
    """
    if output.dim() == 2:
        return output
    channels, height, width = output.shape[1:]
    side = max(1, math.isqrt(dims // channels))
    return F.adaptive_avg_pool2d(output, (min(side, height), min(side, width))).flatten(1)


def layer_outputs(encoder: Encoder) -> dict[str, Tensor]:
    """The output of each layer for one blank image, by name; only running it shows which there are."""
    channels, size = encoder.options["channels"], encoder.options["size"]
    return forward(encoder, torch.zeros(1, channels, size, size), read=Encoder.layers)


def layer_features(task: Task, split: Split, part: str, layer: str | None) -> tuple[Tensor, Tensor]:
    """(n, d) of whole pictures, and labels (n,); the task computes them once."""
    if layer is None:
        return task.features(split, part)
    return task.outputs(split, part, f"{layer}, means of a grid, at most {LAYER_DIMS}", partial(read_layer, layer))


def trainable_backbone(task: Task, part: str, layer: str | None = None, *, drop_path: float = 0.0) -> ViewBackbone:
    """A copy of the encoders of a part of the task, so that no training can change the model's own."""
    copies = {view: with_drop_path(encoder, drop_path) for view, encoder in _encoders(task, part).items()}
    copied = ViewBackbone(copies, layer).requires_grad_()  # also what pre-training had frozen
    dense_convolutions(copied)
    return copied.to(task.device)


def view_of(task: Task, part: str) -> str | None:
    """The one view of a part; None where it is all of them."""
    return part if part in task.model.encoders else None


def with_drop_path(encoder: Encoder, rate: float) -> Encoder:
    """A copy whose blocks are passed over at random in training, where its library knows how (timm: drop_path_rate).

    The chance is `rate` at the last block and falls towards the first. A warning tells of networks that have none.
    """
    if not rate:
        return deepcopy(encoder)
    try:
        with torch.random.fork_rng([]):
            made = create(encoder.name, **{**encoder.options, "drop_path_rate": rate})
    except UserError:
        warnings.warn(f"{encoder.name} has no drop path; it is trained without", stacklevel=2)
        return deepcopy(encoder)
    made.load_state_dict(encoder.state_dict())
    return made


def check_unchanged(backbone: ViewBackbone, task: Task, part: str) -> None:
    """Checks that a frozen copy still equals the model to the bit, buffers such as batch norm's statistics included."""
    for encoder, original in zip(backbone.encoders, _encoders(task, part).values(), strict=True):
        was = {**dict(original.named_parameters()), **dict(original.named_buffers())}
        for name, now in (*encoder.named_parameters(), *encoder.named_buffers()):
            if not torch.equal(now.cpu(), was[name].cpu()):
                raise RuntimeError(f"{name} of {original.name} changed, though only the classifier was to be trained")


def _encoders(task: Task, part: str) -> dict[str, Encoder]:
    """The encoders of a part of the task, by the view that each is for."""
    by_view = {view or task.reference: encoder for view, encoder in task.model.encoders.items()}
    return {part: by_view[part]} if part in by_view else by_view


def choose_layer(model: ModelSource, asked: str | None, usual: str | None) -> str | None:
    """The layer that was asked for, which must be there, or else the usual one if it is."""
    if asked is None and usual is None:
        return None
    for encoder in model.encoders.values():
        there = list(layer_outputs(encoder))
        if asked is not None and asked not in there:
            raise UserError("layer", f"expected one of {', '.join(there)} in {encoder.name}, got {asked!r}")
        usual = usual if usual in there else None
    return asked or usual


def augmented_batches(
    task: Task,
    batch_size: int,
    read: Callable[[Views], Any],
    *,
    drop_last: bool,
    part: str = "",
    pipeline: Pipeline | None = None,
) -> Batches:
    """Gives what is read of the training images of a part, augmented anew each epoch: crop and flip, or by a
    pipeline."""
    views, images = pipeline or task.pipeline("probe-train", view=view_of(task, part)), task.images("train", part)
    loader = task.loader(images, views, batch_size=batch_size, shuffle=True, drop_last=drop_last)

    def epoch(number: int) -> Iterator[tuple[Any, Tensor]]:
        for batch in loader.epoch(number):
            yield read(batch.views()), batch.labels

    return Batches(len(loader), epoch)


def plain_test_batches(task: Task, part: str = "") -> Batches:
    """Gives what a part sees of the test images, in order; one that cannot be read is left out, and so is its
    stand-in."""
    loader = task.loader(task.images("test", part), task.pipeline(view=view_of(task, part)))

    def epoch(number: int) -> Iterator[tuple[Views, Tensor]]:
        start = 0
        for batch in loader.epoch(0):
            itself = batch.index == torch.arange(start, start + len(batch), device=batch.index.device)
            start += len(batch)
            views = {name: [copy[itself] for copy in copies] for name, copies in batch.views().items()}
            yield views, batch.labels[itself]

    return Batches(len(loader), epoch)
