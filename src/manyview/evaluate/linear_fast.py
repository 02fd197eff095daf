"""`linear-fast`: logistic regression on frozen features, the answer in seconds; and on every layer, `layers`."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.encoders import Encoder
from manyview.evaluate.backbone import grid_means, layer_outputs
from manyview.evaluate.scores import by_part, on_features, tops
from manyview.evaluate.task import Score, Scores, Split, Task
from manyview.features.logistic import CS, STEPS, Scaling, fit_chosen, logits

SPLITS: tuple[Split, Split] = ("train", "test")


def linear_fast(
    task: Task, *, cs: tuple[float, ...] = CS, held_out: float = 0.2, standardise: bool = True, steps: Count = STEPS
) -> Scores:
    """Top-1 and top-5 of multinomial logistic regression on the embeddings, and the C that was chosen.

    cs           candidates for C, the inverse of the L2 penalty, as scikit-learn's LogisticRegression has it
    held_out     the share of the training images that chooses among them; then all are trained on
    standardise  each feature to mean 0 and std 1 first, so that C means the same for all encoders
    steps        of L-BFGS at most; it ends before, where the gradient does
    """
    check(cs, held_out)

    def score(x: Tensor, labels: Tensor, test: Tensor, right: Tensor) -> list[Score]:
        if standardise:
            scaling = Scaling.of(x)
            x, test = scaling(x), scaling(test)
        return score_logistic(task, x, labels, test, right, cs, held_out, steps)

    return on_features(task, score)


def score_logistic(
    task: Task,
    x: Tensor,
    labels: Tensor,
    test: Tensor,
    right: Tensor,
    cs: tuple[float, ...],
    held_out: float,
    steps: int,
) -> list[Score]:
    """The scores of logistic regression with the C that a held-out part of the training images chooses."""
    classes = len(task.classes)
    x, labels, test = (each.to(task.device) for each in (x, labels, test))
    weights, C = fit_chosen(x, labels, classes, cs, held_out, steps=steps, seed=task.seed)
    return [*tops(logits(weights, test), right, classes), ("chosen C", C)]


def check(cs: tuple[float, ...], held_out: float = 0.2) -> None:
    """Refuses what is no C, or no share, in one line."""
    if not cs or not all(each > 0 for each in cs):
        raise UserError("cs", f"expected numbers above 0, got {cs or 'none'}")
    if not 0 < held_out < 1:
        raise UserError("held_out", f"expected a share between 0 and 1, got {held_out}")


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
        outputs = [layer_outputs(encoders[view]) for view in views]
        widths = [{name: grid_means(each, dims).shape[1] for name, each in view.items()} for view in outputs]
        if len({len(each) for each in widths}) > 1:
            return
        for number, layer in enumerate(zip(*widths, strict=True)):
            columns = _columns([list(each.values()) for each in widths], number)
            read, what = partial(pooled, dims=dims), f"layers of {dims}"
            (train, labels), (test, right) = (task.outputs(split, part, what, read) for split in SPLITS)
            train, test = train[:, columns], test[:, columns]
            scaling = Scaling.of(train)
            scores = score_logistic(task, scaling(train), labels, scaling(test), right, cs, held_out, STEPS)
            name = " + ".join(dict.fromkeys(layer))
            yield from ((f"{name} {top}", value) for top, value in scores if top.startswith("top"))

    return by_part(task, score)


def pooled(encoder: Encoder, x: Tensor, dims: int) -> Tensor:
    """(n, sum of the layers' widths): all layers side by side, each as `grid_means` with at most `dims` numbers."""
    return torch.cat([grid_means(each, dims) for each in encoder.layers(x).values()], 1).float()


def _columns(widths: list[list[int]], number: int) -> Tensor:
    """The columns of one layer of each view, in the outputs of all views and layers side by side."""
    found, start = [], 0
    for view in widths:
        first = start + sum(view[:number])
        found.append(torch.arange(first, first + view[number]))
        start += sum(view)
    return torch.cat(found)
