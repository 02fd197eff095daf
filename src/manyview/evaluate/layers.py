"""A probe on every layer: where in the network the classes can be told apart (CMC Table 8)."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.errors import UserError
from manyview.embeddings.model_source import ALL
from manyview.encoders import Encoder
from manyview.evaluate.classifier import named
from manyview.evaluate.logistic import CS, Scaling, check, judged
from manyview.evaluate.task import Scores, Split, Task
from manyview.features.embedding_pass import still

SPLITS: tuple[Split, Split] = ("train", "test")


def layers(task: Task, *, dims: int = 1024, cs: tuple[float, ...] = CS, held_out: float = 0.2) -> Scores:
    """Top-1 and top-5 of `linear-fast` on the feature map of every stage, the first layer first.

    With an encoder per view, also on the maps of all of them side by side, layer by layer, where they have as many.

    dims          of a map that are probed at most: it is averaged over the cells of a square grid, as fine as fits. The
                  papers take about 9,000 (CMC, after Zhang et al., ECCV 2016), which takes ten times as long
    cs, held_out  as for `linear-fast`
    """
    check(cs, held_out)
    if dims < 1:
        raise UserError("dims", f"expected 1 or more, got {dims}")
    task.check()
    return _layers(task, dims, cs, held_out)


def _layers(task: Task, dims: int, cs: tuple[float, ...], held_out: float) -> Scores:
    encoders = task.subject.encoders
    widths = {view: _widths(encoder, dims) for view, encoder in encoders.items()}
    depths = {len(each) for each in widths.values()}
    for part in task.parts:
        if part == ALL and len(depths) > 1:
            continue
        views = [part] if part in encoders else list(encoders)
        names = [" + ".join(dict.fromkeys(each)) for each in zip(*(widths[view] for view in views), strict=True)]
        for number, name in enumerate(names):
            columns = _columns([list(widths[view].values()) for view in views], number)
            (train, labels), (test, right) = (_layer(task, split, part, dims, columns) for split in SPLITS)
            scaling = Scaling.of(train)
            scores = judged(task, scaling(train), labels, scaling(test), right, cs=cs, held_out=held_out)
            yield from named(part, named(name, [each for each in scores if each[0].startswith("top")]))


def pooled(encoder: Encoder, x: Tensor, dims: int) -> Tensor:
    """(n, sum of the layers' widths): the maps of all layers, averaged to at most `dims` numbers each.

    A map of more channels is averaged to one number a channel, and what is no map stays as it is.
    """
    return torch.cat([_cells(each, dims) for each in encoder.layers(x).values()], 1)


def _cells(output: Tensor, dims: int) -> Tensor:
    if output.dim() == 2:
        return output
    side = max(1, math.isqrt(dims // output.shape[1]))
    height, width = output.shape[2:]
    return F.adaptive_avg_pool2d(output, (min(side, height), min(side, width))).flatten(1)


def _layer(task: Task, split: Split, part: str, dims: int, columns: Tensor) -> tuple[Tensor, Tensor]:
    seen, labels = task.seen(split, part, f"layers of {dims}", partial(pooled, dims=dims))
    return seen[:, columns], labels


def _columns(widths: list[list[int]], number: int) -> Tensor:
    """Where one layer of each view is, in what is seen of all views and layers side by side."""
    found, start = [], 0
    for view in widths:
        first = start + sum(view[:number])
        found.append(torch.arange(first, first + view[number]))
        start += sum(view)
    return torch.cat(found)


@torch.no_grad()
def _widths(encoder: Encoder, dims: int) -> dict[str, int]:
    """What each layer comes to."""
    some, side = next(encoder.parameters()), encoder.options["size"]
    image = torch.zeros(1, encoder.options["channels"], side, side, device=some.device, dtype=some.dtype)
    with still(encoder):
        return {name: _cells(each, dims).shape[1] for name, each in encoder.layers(image).items()}
