"""Multinomial logistic regression on frozen features, with the penalty that held-out rows choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.rng import key, order

DONE, ROUGHLY = 1e-5, 1e-4  # the gradient's largest entry at which a fit is done; one that only helps to choose C
STEPS = 500  # of L-BFGS at most
PATIENCE = 3  # values of C that may be worse, one after the other, before larger ones are not tried
CS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0, 10.0)
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


def fit_chosen(
    x: Tensor,
    labels: Tensor,
    classes: int,
    cs: tuple[float, ...] = CS,
    held_out: float = 0.2,
    *,
    steps: int = STEPS,
    seed: int = 0,
) -> tuple[Tensor, float]:
    """The weights of a fit to all rows (n, d), and its C, which a share of them, drawn by the seed, has chosen."""
    held = torch.zeros(len(x), dtype=torch.bool)
    held[order(key(HELD_OUT, seed, torch.arange(len(x))))[: round(held_out * len(x))]] = True
    C, start = choose(x[~held], labels[~held], x[held], labels[held], classes, cs, steps)
    return fit(x, labels, classes, C, start=start, steps=steps), C


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
