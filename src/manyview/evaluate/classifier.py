"""Training a classifier with labels: what the trained probes, fine-tuning and the supervised baseline share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from manyview import __version__
from manyview.core.errors import UserError
from manyview.core.rng import key
from manyview.core.text import digest
from manyview.encoders import Encoder
from manyview.evaluate.scores import tops
from manyview.evaluate.task import Score, Task
from manyview.features.feature_cache import PROBE_CHECKPOINT
from manyview.training.checkpoint import read, write
from manyview.training.layer_decay import decay_by_layer
from manyview.training.optimizers import cosine, set_lr, sgd, steps

Module = TypeVar("Module", bound=nn.Module)
Curve = list[list[float]]
"""Scores by epoch."""

SECONDS = 10.0  # between two checkpoints, so that a training of seconds writes none


@dataclass(frozen=True)
class ClassifierRecipe:
    """Says how a classifier is trained.

    source      where the numbers are from
    lr          of the encoder and the classifier, whichever is trained; for `batch_size`, nothing is scaled
    lr_head     of the classifier, if it has its own
    milestones  epochs, counted from 0, from which on the learning rate is `factor` times what it was; with none it
                falls with a cosine
    optimizer   one of `manyview.training.optimizers`
    layer       what the classifier sits on, in encoders that have such a layer; otherwise on the embedding

    For fine-tuning:

    warmup        epochs in which the learning rate rises from 0, before the cosine
    floor         the share of the learning rate that the cosine ends at
    layer_decay   the learning rate of a layer is so many times that of the next (`decay_by_layer`); None leaves it out
    drop_path     chance that a block is passed over, of the last block; it falls towards the first
    smoothing     of the labels
    mixup, cutmix  alpha of each, 0 for none (`mixing.py`)
    rand_augment  timm's name of a RandAugment policy, such as "rand-m9-mstd0.5-inc1"; None for crop and flip alone
    erase         chance that a box of the picture becomes noise

    Learning rates are set once an epoch, as all of these papers' codes do, but with a warm-up at every step.
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
    warmup: float = 0.0
    floor: float = 0.0
    layer_decay: float | None = None
    drop_path: float = 0.0
    smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    rand_augment: str | None = None
    erase: float = 0.0

    def lr_factor(self, epoch: float) -> float:
        """Gives what the learning rates are multiplied with after so many epochs."""
        if not self.warmup:
            epoch = math.floor(epoch)
        if self.milestones:
            return steps(epoch, self.epochs, milestones=self.milestones, factor=self.factor, warmup=self.warmup)
        factor = cosine(epoch, self.epochs, warmup=self.warmup)
        return factor if epoch < self.warmup else self.floor + (1 - self.floor) * factor

    def with_numbers(self, *, epochs: int | None = None, **others: float | None) -> ClassifierRecipe:
        """The same but for what is given and not None.

        Milestones and warm-up move along with the epochs: 60 of 100 is 6 of 10.
        """
        epochs = epochs or self.epochs
        given: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
        moved = tuple(each * epochs / self.epochs for each in self.milestones)
        warmup = self.warmup * epochs / self.epochs
        return replace(self, epochs=epochs, milestones=moved, warmup=warmup, **given)


def choose_recipe(table: Mapping[str, ClassifierRecipe], name: str, **numbers: Any) -> ClassifierRecipe:
    """The recipe of that name, with other numbers where they are given."""
    if name not in table:
        raise UserError("recipe", f"expected one of {', '.join(table)}, got {name!r}")
    return table[name].with_numbers(**numbers)


@dataclass(frozen=True, eq=False)
class Batches:
    """count batches an epoch, of what the classifier takes and labels, on one device.

    Labels are (n,), or (n, classes) where an image is partly of one class and partly of another.
    """

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
    optimizers = [make_optimizer(recipe, part, lr) for part, lr in learning]
    path = checkpoint_path(task, [*identity, {**vars(recipe), "optimizer": None}])  # a function has no name
    checkpoint = ProbeCheckpoint(path, model, optimizers)
    curve = checkpoint.restore()
    with (
        torch.random.fork_rng([task.device] if task.device.type == "cuda" else []),
        task.progress(recipe.epochs * train.count, str(identity[0])) as advance,
    ):
        advance(len(curve) * train.count)
        for epoch in range(len(curve), recipe.epochs):
            torch.manual_seed(int(key(task.seed, epoch)))  # for dropout and the like
            lrs = " and ".join(f"{lr:g}" for _, lr in learning)
            diverged = f"with {lrs} the loss is no number any more in epoch {epoch + 1}; give a lower one"
            model.train()
            for number, (x, labels) in enumerate(train.epoch(epoch)):
                factor = recipe.lr_factor(epoch + number / train.count)
                for optimizer, (_, lr) in zip(optimizers, learning, strict=True):
                    set_lr(optimizer, lr * factor)
                take_step(model, optimizers, F.cross_entropy, x, labels, diverged, label_smoothing=recipe.smoothing)
                advance()
            curve.append(_test(model, test, len(task.classes), diverged))
            checkpoint.save(curve)
    checkpoint.save(curve, ended=True)
    if path is not None:
        task.checkpoints.append(path)
    return last_and_best(curve)


def make_optimizer(recipe: ClassifierRecipe, part: nn.Module, lr: float) -> Optimizer:
    """The recipe's optimiser of a part of a model."""
    made = recipe.optimizer(part, lr=lr, weight_decay=recipe.weight_decay)
    if recipe.layer_decay is not None:
        for encoder in part.modules():
            if isinstance(encoder, Encoder):
                decay_by_layer(made, encoder.network, recipe.layer_decay)
    return made


def take_step(
    model: nn.Module,
    optimizers: Sequence[Optimizer],
    loss_of: Callable[..., Tensor],
    x: Any,
    labels: Tensor,
    diverged: str,
    **settings: Any,
) -> None:
    """One step of all optimisers on one batch; `diverged` is said where the loss is no number."""
    loss = loss_of(model(x), labels, **settings)
    if not torch.isfinite(loss):
        raise UserError("lr", diverged)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


@torch.no_grad()
def _test(model: nn.Module, test: Batches, classes: int, diverged: str) -> list[float]:
    model.eval()
    logits, labels = zip(*((model(x).cpu(), labels.cpu()) for x, labels in test.epoch(0)), strict=True)
    if not all(torch.isfinite(each).all() for each in logits):
        raise UserError("lr", diverged)
    return [float(share) for _, share in tops(torch.cat(logits), torch.cat(labels), classes)]


def last_and_best(curve: Sequence[Sequence[float]]) -> list[Score]:
    """The last of (top-1, top-5) by epoch, and the ones with the best top-1, which the test labels have chosen."""
    best = max(range(len(curve)), key=lambda epoch: curve[epoch][0])
    names = ("top1", "top5")[: len(curve[0])]
    return [
        *zip(names, curve[-1], strict=True),
        *zip((f"best {name}" for name in names), curve[best], strict=True),
        ("best epoch", float(best + 1)),
    ]


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


@dataclass
class ProbeCheckpoint:
    """Weights, optimisers and scores after an epoch, in a file of the feature cache; None where nothing is kept.

    A file that cannot be read or written costs no more than the time it would have saved.
    """

    path: Path | None
    model: nn.Module
    optimizers: Sequence[Optimizer]
    begun: float = field(default_factory=time.monotonic)
    saved: float = 0.0

    def restore(self) -> Curve:
        """The scores of the epochs that were done, after which model and optimisers are as they were."""
        if self.path is None:
            return []
        fresh = deepcopy(self._state([]))
        try:
            return self._put(read(self.path))
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):  # damaged, or of another torch
            return self._put(fresh)

    def save(self, curve: Curve, *, ended: bool = False) -> None:
        """Writes them, if that was long ago; at the end, which another training may follow, if it took long."""
        then = self.begun if ended else max(self.begun, self.saved)
        if self.path is not None and time.monotonic() - then >= SECONDS:
            with suppress(OSError):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write(self._state(curve), self.path)
            self.saved = time.monotonic()

    def _state(self, curve: Curve) -> dict[str, Any]:
        optimizers = [each.state_dict() for each in self.optimizers]
        return {"model": self.model.state_dict(), "optimizers": optimizers, "curve": curve}

    def _put(self, state: dict[str, Any]) -> Curve:
        curve: Curve = state["curve"]
        self.model.load_state_dict(state["model"])
        for optimizer, each in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(each)
        return curve


def checkpoint_path(task: Task, identity: Sequence[object]) -> Path | None:
    """The file of a training that differs from others in its task or in its `identity`; None without a cache."""
    if task.cache is None:
        return None
    name = digest([__version__, *map(repr, identity), task.model.checksum, task.fingerprints, task.seed])
    return task.cache.folder / f"{name}{PROBE_CHECKPOINT}"
