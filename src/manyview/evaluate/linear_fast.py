"""`linear-fast`: logistic regression on frozen features, the answer in seconds; and on every layer, `layers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.encoders import Encoder
from manyview.evaluate.backbone import grid_means, layer_outputs
from manyview.evaluate.scores import by_part, on_features, tops
from manyview.evaluate.task import Score, Scores, Split, Task

DONE, ROUGHLY = 1e-5, 1e-4  # the gradient's largest entry at which a fit is done; one that only helps to choose C
STEPS = 500  # of L-BFGS at most
PATIENCE = 3  # values of C that may be worse, one after the other, before larger ones are not tried
CS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
SPLITS: tuple[Split, Split] = ("train", "test")
HELD_OUT = 0x4E1D  # keeps this draw apart from others with the same seed


@dataclass(frozen=True, eq=False)
class Scaling:
    """Standardises features by the mean and std of the training images."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Scaling:
        """A feature that is always the same stays as it is, less its mean."""
        std = x.std(0, correction=0)
        return cls(x.mean(0), torch.where(std > 1e-6 * x.abs().amax(0), std, torch.ones(())))

    def __call__(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std


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
    held = torch.zeros(len(x), dtype=torch.bool)
    held[order(key(HELD_OUT, task.seed, torch.arange(len(x))))[: round(held_out * len(x))]] = True
    x, labels, test = (each.to(task.device) for each in (x, labels, test))
    C, start = choose(x[~held], labels[~held], x[held], labels[held], classes, cs, steps)
    weights = fit(x, labels, classes, C, start=start, steps=steps)
    return [*tops(logits(weights, test), right, classes), ("chosen C", C)]


def choose(
    x: Tensor, labels: Tensor, held: Tensor, right: Tensor, classes: int, cs: tuple[float, ...], steps: int = STEPS
) -> tuple[float, Tensor | None]:
    """The C of which most of the held-out labels are right, the smallest of several, and its weights.

    From small to large, each beginning where the one before has ended; no larger ones after a few that were worse.
    """
    if len(cs) == 1 or not len(held):
        return cs[0], None
    best, worse = -1.0, 0
    chosen: tuple[float, Tensor | None] = (cs[0], None)
    weights: Tensor | None = None
    for C in sorted(cs):
        weights = fit(x, labels, classes, C, start=weights, steps=steps, done=ROUGHLY)
        share = float((logits(weights, held).argmax(1) == right).double().mean())
        worse = 0 if share > best else worse + (share < best)
        if share > best:
            best, chosen = share, (C, weights)
        if worse == PATIENCE:
            break
    return chosen


def fit(
    x: Tensor,
    labels: Tensor,
    classes: int,
    C: float,
    *,
    start: Tensor | None = None,
    steps: int = STEPS,
    done: float = DONE,
) -> Tensor:
    """Weights (d + 1, classes), the last row the biases: the least of C * sum of cross-entropies + |W|^2 / 2.

    So scikit-learn's LogisticRegression(C) has it: biases are not penalised. By L-BFGS (Liu and Nocedal, 1989).
    """
    weights = x.new_zeros(x.shape[1] + 1, classes) if start is None else start.clone()

    def loss(weights: Tensor) -> Tensor:
        return F.cross_entropy(logits(weights, x), labels) + weights[:-1].square().sum() / (2 * C * len(x))

    return minimise(loss, weights, steps, done)


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int = STEPS, done: float = DONE) -> Tensor:
    """The weights of the least loss, by L-BFGS from `start` on, which is overwritten."""
    weights = start.requires_grad_()
    optimizer = torch.optim.LBFGS(
        [weights], max_iter=steps, tolerance_grad=done, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        found = loss(weights)
        found.backward()
        return found

    with torch.enable_grad():
        optimizer.step(closure)
    return weights.detach()


def logits(weights: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(weights[-1], x, weights[:-1])


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
