"""Who learns from a few shots: a classifier on frozen features, or the whole network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.rng import key, order
from manyview.data import subset
from manyview.data.dataset import targets_of
from manyview.data.loader import SHUFFLE
from manyview.evaluate.backbone import trainable_backbone, view_of
from manyview.evaluate.classifier import seeded
from manyview.evaluate.task import Split, Task
from manyview.training.optimizers import sgd

PREDICTED = 4096  # features at a time

Epochs = Callable[[int], Iterator[tuple[Any, Tensor]]]
"""The number of an epoch -> what the network takes, and the rows that it is of, batch by batch."""


class Learner(Protocol):
    """What is trained on some rows of the training images, and asked about any others."""

    def targets(self, split: Split) -> Tensor:
        """Labels (n,), or label sets (n, classes), of which `rows` are meant."""
        ...

    def network(self) -> nn.Module:
        """A fresh one, the same each time."""
        ...

    def batches(self, split: Split, rows: Tensor, size: int, *, shuffle: bool) -> Epochs: ...


class FrozenLearner:
    """A linear classifier on embeddings that are computed once, behind a batch norm without weights."""

    def __init__(self, task: Task, part: str) -> None:
        self.task = task
        self._found: dict[Split, tuple[Tensor, Tensor]] = {
            "train": task.features("train", part), "test": task.features("test", part),
        }  # fmt: skip

    def targets(self, split: Split) -> Tensor:
        return self._found[split][1]

    def network(self) -> nn.Module:
        return seeded(lambda: _head(self._found["train"][0].shape[1], self.task), self.task.seed).to(self.task.device)

    def batches(self, split: Split, rows: Tensor, size: int, *, shuffle: bool) -> Epochs:
        x, device = self._found[split][0], self.task.device

        def epoch(number: int) -> Iterator[tuple[Tensor, Tensor]]:
            ordered = rows[order(key(SHUFFLE, self.task.seed, number, rows))] if shuffle else rows
            for some in ordered.split(size if shuffle else PREDICTED):
                yield x[some].to(device), some

        return epoch


class WholeLearner:
    """The whole network with the same classifier; pictures are not augmented."""

    def __init__(self, task: Task, part: str) -> None:
        self.task, self.part = task, part

    def targets(self, split: Split) -> Tensor:
        return targets_of(self.task.images(split, self.part))

    def network(self) -> nn.Module:
        backbone = trainable_backbone(self.task, self.part)
        head = seeded(lambda: _head(backbone.dim, self.task), self.task.seed)
        return nn.Sequential(backbone, head).to(self.task.device)

    def batches(self, split: Split, rows: Tensor, size: int, *, shuffle: bool) -> Epochs:
        chosen = subset(self.task.images(split, self.part), rows)
        views = self.task.pipeline(view=view_of(self.task, self.part))
        loader = self.task.loader(chosen, views, batch_size=size, shuffle=shuffle)

        def epoch(number: int) -> Iterator[tuple[Any, Tensor]]:
            for batch, asked in zip(loader.epoch(number), loader.rows(number), strict=True):
                itself = (batch.index.cpu() == asked) | torch.tensor(shuffle)  # no stand-in of what cannot be read
                views = {name: [copy[itself] for copy in copies] for name, copies in batch.views().items()}
                yield views, rows[batch.index.cpu()[itself]]

        return epoch


def _head(features: int, task: Task) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(features, affine=False), nn.Linear(features, len(task.classes)))


def learn(
    learner: Learner, rows: Tensor, epochs: int, lr: float, decay: float, size: int, seed: int
) -> nn.Module | None:
    """The network after so many epochs on the rows, by SGD at a constant rate; None if it diverged.

    A last batch of one image is left out: a batch norm cannot learn from it.
    """
    network, targets = learner.network(), learner.targets("train")
    optimizer = sgd(network, lr=lr, weight_decay=decay)
    batches = learner.batches("train", rows, size, shuffle=True)
    device = next(network.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for epoch in range(epochs):
            torch.manual_seed(int(key(seed, epoch)))  # for dropout and the like
            network.train()
            for x, some in batches(epoch):
                if len(some) < 2:
                    continue
                logits = network(x)
                loss = loss_of(logits, targets[some].to(logits.device))
                if not torch.isfinite(loss):
                    return None
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return network


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of labels (n,), or of each class by itself of label sets (n, classes), those of -1 left out."""
    if targets.dim() == 1:
        return F.cross_entropy(logits, targets)
    counted = targets >= 0
    return F.binary_cross_entropy_with_logits(logits[counted], targets[counted].to(logits.dtype))


@torch.no_grad()
def predict(learner: Learner, network: nn.Module, split: Split, rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Logits (n, classes) and targets of the rows that can be read."""
    network.eval()
    found = [(network(x).float().cpu(), some) for x, some in learner.batches(split, rows, size, shuffle=False)(0)]
    return torch.cat([logits for logits, _ in found]), learner.targets(split)[torch.cat([some for _, some in found])]


LEARNERS: dict[str, Callable[[Task, str], Learner]] = {"finetune": WholeLearner, "linear": FrozenLearner}
