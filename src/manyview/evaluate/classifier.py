"""Training a classifier with labels: what the trained probes, fine-tuning and the supervised baseline share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from manyview.core.errors import UserError
from manyview.core.rng import key
from manyview.evaluate.probe_checkpoint import ProbeCheckpoint
from manyview.evaluate.scores import tops
from manyview.evaluate.task import Score, Task
from manyview.training.optimizers import cosine, set_lr, sgd, steps

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class ClassifierRecipe:
    """How a classifier is trained.

    source      where the numbers are from
    lr          of the encoder and the classifier, whichever is trained; for `batch_size`, nothing is scaled
    lr_head     of the classifier, if it has its own
    milestones  epochs, counted from 0, from which on the learning rate is `factor` times what it was; with none it
                falls with a cosine
    optimizer   one of `manyview.training.optimizers`
    layer       what the classifier sits on, in encoders that have such a layer; otherwise on the embedding

    Learning rates are set once an epoch, as all of these papers' codes do.
    """

    source: str
    lr: float
    batch_size: int
    epochs: int
    milestones: tuple[float, ...] = ()
    factor: float = 0.1
    weight_decay: float = 0.0
    lr_head: float | None = None
    optimizer: Callable[..., Optimizer] = sgd
    layer: str | None = None

    def lr_factor(self, epoch: int) -> float:
        """What the learning rates are multiplied with in an epoch."""
        if not self.milestones:
            return cosine(epoch, self.epochs)
        return steps(epoch, self.epochs, milestones=self.milestones, factor=self.factor)

    def stretched(self, epochs: int) -> ClassifierRecipe:
        """The same in more or fewer epochs: milestones move along, 60 of 100 becomes 6 of 10."""
        return replace(self, epochs=epochs, milestones=tuple(each * epochs / self.epochs for each in self.milestones))


def choose_recipe(
    table: Mapping[str, ClassifierRecipe], name: str, *, epochs: int | None = None, **others: float | None
) -> ClassifierRecipe:
    """The recipe of that name, but for what is given and not None."""
    if name not in table:
        raise UserError("recipe", f"expected one of {', '.join(table)}, got {name!r}")
    given = {what: value for what, value in others.items() if value is not None}
    for what, value in {**given, **({} if epochs is None else {"epochs": epochs})}.items():
        if not 0 < value < math.inf:
            raise UserError(what, f"expected a number above 0, got {value}")
    recipe = replace(table[name], **given)  # type: ignore[arg-type]
    return recipe if epochs is None else recipe.stretched(epochs)


@dataclass(frozen=True, eq=False)
class Batches:
    """count batches an epoch, of what the classifier takes and labels (n,), on one device."""

    count: int
    epoch: Callable[[int], Iterator[tuple[Any, Tensor]]]


def fit(
    model: nn.Module,
    learning: Sequence[tuple[nn.Module, float]],
    recipe: ClassifierRecipe,
    train: Batches,
    test: Batches,
    task: Task,
    identity: Sequence[object],
) -> list[Score]:
    """Trains parts of a model with labels, and scores it after every epoch: the last one's scores and the best one's.

    learning  parts of the model and the learning rate of each
    identity  the protocol, and what else tells this training from others of the same task

    With a cache it goes on where it was interrupted, and ends with the same weights.
    """
    optimizers = [recipe.optimizer(part, lr=lr, weight_decay=recipe.weight_decay) for part, lr in learning]
    checkpoint = ProbeCheckpoint.of(task, [*identity, {**vars(recipe), "optimizer": None}])  # a function has no name
    curve = checkpoint.restore(model, optimizers)
    with (
        torch.random.fork_rng([task.device] if task.device.type == "cuda" else []),
        task.progress(recipe.epochs * train.count, str(identity[0])) as advance,
    ):
        advance(len(curve) * train.count)
        for epoch in range(len(curve), recipe.epochs):
            torch.manual_seed(int(key(task.seed, epoch)))  # for dropout and the like
            for optimizer, (_, lr) in zip(optimizers, learning, strict=True):
                set_lr(optimizer, lr * recipe.lr_factor(epoch))
            _train(model, optimizers, train.epoch(epoch), _diverged(learning, epoch), advance)
            curve.append(_test(model, test, len(task.classes), _diverged(learning, epoch)))
            checkpoint.save(model, optimizers, curve)
    checkpoint.finish(model, optimizers, curve, task)
    return last_and_best(curve)


def _train(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    batches: Iterable[tuple[Any, Tensor]],
    diverged: str,
    advance: Callable[[], object],
) -> None:
    model.train()
    for x, labels in batches:
        loss = F.cross_entropy(model(x), labels)
        if not torch.isfinite(loss):
            raise UserError("lr", diverged)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        advance()


@torch.no_grad()
def _test(model: nn.Module, test: Batches, classes: int, diverged: str) -> list[float]:
    model.eval()
    logits, labels = zip(*((model(x).cpu(), labels.cpu()) for x, labels in test.epoch(0)), strict=True)
    if not all(torch.isfinite(each).all() for each in logits):
        raise UserError("lr", diverged)
    return [share for _, share in tops(torch.cat(logits), torch.cat(labels), classes)]


def last_and_best(curve: Sequence[Sequence[float]]) -> list[Score]:
    """The last of (top-1, top-5) by epoch, and the ones with the best top-1, which the test labels have chosen."""
    best = max(range(len(curve)), key=lambda epoch: curve[epoch][0])
    names = ("top1", "top5")[: len(curve[0])]
    return [
        *zip(names, curve[-1], strict=True),
        *zip((f"best {name}" for name in names), curve[best], strict=True),
        ("best epoch", float(best + 1)),
    ]


def _diverged(learning: Sequence[tuple[nn.Module, float]], epoch: int) -> str:
    lrs = " and ".join(f"{lr:g}" for _, lr in learning)
    return f"with {lrs} the loss is no number any more in epoch {epoch + 1}; give a lower one"


def seeded(make: Callable[[], Module], seed: int) -> Module:
    """A module whose weights depend on the seed alone."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return make()


def linear_head(features: int, classes: int) -> nn.Linear:
    """Weights from N(0, 0.01^2), biases 0: MoCo's, CMC's."""
    head = nn.Linear(features, classes)
    nn.init.normal_(head.weight, 0.0, 0.01)
    nn.init.zeros_(head.bias)
    return head
