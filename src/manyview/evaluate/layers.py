"""A probe on every layer: where in the network the classes can be told apart (CMC Table 8)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from manyview.core.bounds import Count
from manyview.encoders import Encoder
from manyview.evaluate.backbone import grid_means, layer_outputs
from manyview.evaluate.logistic import CS, Scaling, check, score_logistic
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Scores, Split, Task

SPLITS: tuple[Split, Split] = ("train", "test")


def layers(task: Task, *, dims: Count = 1024, cs: tuple[float, ...] = CS, held_out: float = 0.2) -> Scores:
    """Top-1 and top-5 of `linear-fast` on the feature map of every stage, the first layer first.

    With an encoder per view, also on the maps of all of them side by side, layer by layer, where they have as many.

    dims          of a map that are probed at most: it is averaged over the cells of a square grid, as fine as fits. The
                  papers take about 9,000 (CMC, after Zhang et al., ECCV 2016), which takes ten times as long
    cs, held_out  as for `linear-fast`
    """
    check(cs, held_out)
    encoders = task.model.encoders

    def score(part: str) -> Scores:
        views = [part] if part in encoders else list(encoders)
        widths = [_widths(encoders[view], dims) for view in views]
        if len({len(each) for each in widths}) > 1:
            return
        for number, layer in enumerate(zip(*widths, strict=True)):
            columns = _columns([list(each.values()) for each in widths], number)
            (train, labels), (test, right) = (_layer(task, split, part, dims, columns) for split in SPLITS)
            scaling = Scaling.of(train)
            scores = score_logistic(task, scaling(train), labels, scaling(test), right, cs=cs, held_out=held_out)
            name = " + ".join(dict.fromkeys(layer))
            yield from ((f"{name} {top}", value) for top, value in scores if top.startswith("top"))

    return by_part(task, score)


def pooled(encoder: Encoder, x: Tensor, dims: int) -> Tensor:
    """(n, sum of the layers' widths): all layers side by side, each as `grid_means` with at most `dims` numbers."""
    return torch.cat([grid_means(each, dims) for each in encoder.layers(x).values()], 1).float()


def _layer(task: Task, split: Split, part: str, dims: int, columns: Tensor) -> tuple[Tensor, Tensor]:
    found, labels = task.outputs(split, part, f"layers of {dims}", partial(pooled, dims=dims))
    return found[:, columns], labels


def _columns(widths: list[list[int]], number: int) -> Tensor:
    """The columns of one layer of each view, in the outputs of all views and layers side by side."""
    found, start = [], 0
    for view in widths:
        first = start + sum(view[:number])
        found.append(torch.arange(first, first + view[number]))
        start += sum(view)
    return torch.cat(found)


def _widths(encoder: Encoder, dims: int) -> dict[str, int]:
    """How many numbers each layer comes to."""
    return {name: grid_means(each, dims).shape[1] for name, each in layer_outputs(encoder).items()}
