"""What a classifier sits on: copies of the subject's encoders, or one of their layers, and what these see."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.embeddings.model_source import ModelSource
from manyview.encoders import Encoder, dense_convolutions
from manyview.evaluate.classifier import Batches
from manyview.evaluate.task import Split, Task

MOST = 9600  # numbers of a feature map that a classifier gets: CMC's AlexNet has 9,216 to 9,600, whatever the layer


class Looking(nn.Module):
    """Views to features (n, d): of one encoder, or of several side by side, as CMC concatenates them.

    encoders  by the raw view that each looks at
    layer     None: embeddings
    """

    def __init__(self, encoders: Mapping[str, Encoder], layer: str | None = None) -> None:
        super().__init__()
        self.views, self.layer = tuple(encoders), layer
        self.encoders = nn.ModuleList(encoders.values())

    @property
    def dim(self) -> int:
        """Of the embeddings, side by side."""
        return sum(encoder.dim for encoder in self.encoders if isinstance(encoder, Encoder))

    def forward(self, views: Views) -> Tensor:
        seen = (self._see(encoder, views[view][0]) for view, encoder in zip(self.views, self.encoders, strict=True))
        return torch.cat(list(seen), 1)

    def _see(self, encoder: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(encoder, Encoder)
        x = x.to(next(encoder.parameters(), x).dtype)
        x = x.contiguous(memory_format=torch.channels_last) if x.device.type == "cpu" else x
        return read(self.layer, encoder, x).float()


def read(layer: str | None, encoder: Encoder, x: Tensor) -> Tensor:
    """(n, d) embeddings, or a layer's output; of a map the means of the finest square grid within `MOST` numbers."""
    if layer is None:
        embedded: Tensor = encoder(x)
        return embedded
    output = encoder.layers(x)[layer]
    if output.dim() == 2:
        return output
    channels, height, width = output.shape[1:]
    side = max(1, math.isqrt(MOST // channels))
    return F.adaptive_avg_pool2d(output, (min(side, height), min(side, width))).flatten(1)


def features(task: Task, split: Split, part: str, layer: str | None) -> tuple[Tensor, Tensor]:
    """(n, d) of whole pictures, and labels (n,); the task computes them once."""
    if layer is None:
        return task.features(split, part)
    return task.seen(split, part, f"{layer}, means of a grid, at most {MOST}", partial(read, layer))


def looking(task: Task, part: str, layer: str | None = None) -> Looking:
    """A copy of the encoders of a part of the task, so that no training can change the subject's own."""
    copied = Looking(deepcopy(_encoders(task, part)), layer)
    dense_convolutions(copied)
    return copied.to(task.device)


def frozen(task: Task, part: str, layer: str | None = None) -> Looking:
    """The same, not to be trained: in eval mode, and without gradients."""
    return looking(task, part, layer).eval().requires_grad_(False)


def check_unmoved(eyes: Looking, task: Task, part: str) -> None:
    """That what looked is, to the bit, what the subject is: parameters, and buffers such as batch norm's statistics."""
    for encoder, original in zip(eyes.encoders, _encoders(task, part).values(), strict=True):
        was = {**dict(original.named_parameters()), **dict(original.named_buffers())}
        for name, now in (*encoder.named_parameters(), *encoder.named_buffers()):
            if not torch.equal(now.cpu(), was[name].cpu()):
                raise RuntimeError(f"encoder: {name} of {original.name} moved, though only the classifier was to learn")


def _encoders(task: Task, part: str) -> dict[str, Encoder]:
    """By the raw view that each looks at."""
    by_view = {view or task.train.modalities[0]: encoder for view, encoder in task.subject.encoders.items()}
    return {part: by_view[part]} if part in by_view else by_view


def chosen_layer(subject: ModelSource, asked: str | None, usual: str | None) -> str | None:
    """The layer that was asked for, which must be there, or else the usual one if it is."""
    if asked is None and usual is None:
        return None
    for encoder in subject.encoders.values():
        there = _layers(encoder)
        if asked is not None and asked not in there:
            raise UserError("layer", f"expected one of {', '.join(there)} in {encoder.name}, got {asked!r}")
        usual = usual if usual in there else None
    return asked or usual


@torch.no_grad()
def _layers(encoder: Encoder) -> list[str]:
    """The names of its layers, which are known only after it has looked at something."""
    copy, (channels, size) = deepcopy(encoder).eval(), (encoder.options["channels"], encoder.options["size"])
    parameter = next(copy.parameters())
    image = torch.zeros(1, channels, size, size, device=parameter.device, dtype=parameter.dtype)
    return list(copy.layers(image))


def looks(task: Task, batch_size: int, see: Callable[[Views], Any], *, drop_last: bool) -> Batches:
    """What is seen of training images that are cropped and flipped anew each epoch."""
    stack = task.subject.stack("probe-train")
    loader = task.loader("train", stack, shuffle=True, batch_size=batch_size, drop_last=drop_last)

    def epoch(number: int) -> Iterator[tuple[Any, Tensor]]:
        for batch in loader.epoch(number):
            yield see(batch.views()), batch.labels

    return Batches(len(loader), epoch)


def held_out(task: Task) -> Batches:
    """The views of the test images, in order; one that cannot be read is left out, and so is its stand-in."""
    loader = task.loader("test", task.subject.stack(), shuffle=False)

    def epoch(number: int) -> Iterator[tuple[Views, Tensor]]:
        start = 0
        for batch in loader.epoch(0):
            itself = batch.index == torch.arange(start, start + len(batch), device=batch.index.device)
            start += len(batch)
            yield {name: [look[itself] for look in made] for name, made in batch.views().items()}, batch.labels[itself]

    return Batches(len(loader), epoch)
