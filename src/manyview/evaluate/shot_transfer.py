"""Few shots as ELEVATER has them: fine-tuning and a linear probe on n images a class, each tuned on these alone."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import torch
from torch import Tensor

from manyview.core.bounds import Above, AtLeast, Count
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.data.dataset import label_sets
from manyview.evaluate.few_labels import DRAW, drawn
from manyview.evaluate.kept_scores import KeptScores
from manyview.evaluate.metrics import METRICS
from manyview.evaluate.scores import by_part
from manyview.evaluate.shot_learners import LEARNERS, Learner, learn, loss_of, predict
from manyview.evaluate.task import Scores, Task

Mode = Literal["finetune", "linear"]
Metric = Literal["accuracy", "mean-per-class", "roc-auc", "11-point-map"]
SEVERAL: Metric = "11-point-map"  # for samples that have several labels, and for no others
HELD_OUT = 5  # one of so many shots chooses among the candidates


@dataclass(frozen=True)
class Plan:
    """Says how one network learns from shots; see `shot_transfer`."""

    shots: int
    epochs: int
    search_epochs: int
    lrs: tuple[float, ...]
    weight_decays: tuple[float, ...]
    batch_size: int
    metric: Metric

    @property
    def candidates(self) -> list[tuple[float, float]]:
        """(learning rate, weight decay), the smallest first."""
        return [(lr, decay) for lr in sorted(self.lrs) for decay in sorted(self.weight_decays)]


def shot_transfer(
    task: Task,
    *,
    shots: Annotated[int, AtLeast(2)] = 5,
    seeds: Count = 3,
    modes: tuple[Mode, ...] = ("finetune", "linear"),
    metric: Metric | None = None,
    epochs: Count = 50,
    search_epochs: Count = 10,
    lrs: Annotated[tuple[float, ...], Above(0)] = (1e-3, 1e-2, 1e-1),
    weight_decays: Annotated[tuple[float, ...], AtLeast(0)] = (1e-4,),
    batch_size: Annotated[int, AtLeast(2)] = 64,
) -> Scores:
    """Fine-tuning and linear probing with n images a class, as ELEVATER does it: means and stds over several draws.

    ELEVATER (Li et al., NeurIPS 2022), CACR's Table 6. As in its toolkit there is a batch norm without weights in front
    of the linear classifier; SGD with momentum 0.9 at a constant rate; pictures that are not augmented; and 50 epochs
    on all shots with the learning rate that a fifth of the shots chose, after 10 epochs on the others. Otherwise than
    there the score is that of the last epoch, and not of the one that is best on the test images; and a few candidates
    are tried, where theirs are 6 rates from 1e-6 to 1e-1, each with 7 or more weight decays from 1e-6 to 1e6. All
    encoders get the same shots.

    seeds               how many times shots are drawn
    metric              accuracy, or with several labels an image 11-point-map
    epochs              on all shots; `search_epochs` on four fifths of them, for each candidate
    lrs, weight_decays  the candidates
    """
    task.check(several=True)
    usual: Metric = "accuracy" if label_sets(task.train) is None else SEVERAL
    plan = Plan(shots, epochs, search_epochs, lrs, weight_decays, batch_size, metric or usual)
    _check(task, plan, modes)

    def score(part: str) -> Scores:
        kept = KeptScores(task, ["shot-transfer", part, plan])
        with task.progress(len(modes) * seeds, f"{shots} shots of {task.data}") as advance:
            for mode in modes:
                learner, found = LEARNERS[mode](task, part), []
                for seed in range(seeds):
                    found.append(_transferred(learner, plan, kept, mode, task.seed, seed))
                    advance()
                yield f"{shots}-shot {mode}", statistics.fmean(found)
                yield f"{shots}-shot {mode} std", statistics.stdev(found) if seeds > 1 else 0.0

    return by_part(task, score, several=True)


def _check(task: Task, plan: Plan, modes: tuple[Mode, ...]) -> None:
    several = label_sets(task.train) is not None
    if (plan.metric == SEVERAL) != several:
        has = f"several labels an image; {SEVERAL} is for these" if several else "one label an image"
        raise UserError("metric", f"{task.data} has {has}; got {plan.metric}")
    if plan.metric == "roc-auc" and len(task.classes) != 2:
        raise UserError("metric", f"roc-auc is for two classes, and {task.data} has {len(task.classes)}")
    for name, given in (("modes", modes), ("lrs", plan.lrs), ("weight_decays", plan.weight_decays)):
        if not given:
            raise UserError(name, "expected at least one, got none")
    if task.train.labels is not None:
        _check_shots(task.train.labels, plan.shots)


def _check_shots(labels: Tensor, n: int) -> None:
    least = int(labels.unique(return_counts=True)[1].min())
    if least < n:
        raise UserError("shots", f"expected 2 to {least}, the images of the smallest class, got {n}")


def _transferred(learner: Learner, plan: Plan, kept: KeptScores, mode: Mode, seed: int, draw: int) -> float:
    """The test score with the shots of one draw."""
    rows, held = draw_shots(learner.targets("train"), plan.shots, seed, draw)
    training, metric = int(key(DRAW, seed, draw)), METRICS[plan.metric]

    def quality(lr: float, decay: float) -> list[float]:
        """The metric on the shots that are held out, and how low their loss is, where candidates have the same."""
        network = learn(learner, rows[~held], plan.search_epochs, lr, decay, plan.batch_size, training)
        if network is None:
            return [-1.0, 0.0]
        logits, right = predict(learner, network, "train", rows[held], plan.batch_size)
        return [metric(logits, right), -float(loss_of(logits, right))] if logits.isfinite().all() else [-1.0, 0.0]

    def tested(lr: float, decay: float) -> list[float]:
        network = learn(learner, rows, plan.epochs, lr, decay, plan.batch_size, training)
        every = torch.arange(len(learner.targets("test")))
        logits, right = predict(learner, network, "test", every, plan.batch_size) if network else (None, None)
        if logits is None or right is None or not logits.isfinite().all():
            raise UserError("lrs", f"with {lr:g} the loss is no number any more; give lower ones")
        return [metric(logits, right)]

    def named(lr: float, decay: float) -> str:
        return f"{mode} {draw} {lr} {decay}"

    best = plan.candidates[0]
    if len(plan.candidates) > 1:
        best = max(plan.candidates, key=lambda each: kept.of(named(*each), partial(quality, *each)))
    return kept.of(f"{mode} {draw}", partial(tested, *best))[0]


def draw_shots(targets: Tensor, n: int, seed: int, draw: int) -> tuple[Tensor, Tensor]:
    """Rows of n samples of each class, and which of them (bool) are held out to choose by: about one of five.

    With several labels (n, classes), samples that show a class are added, class by class, until n of those that were
    chosen do, or as many as there are.
    """
    if targets.dim() == 1:
        _check_shots(targets, n)  # some images may have been unreadable
        rows = drawn(targets, n, seed, draw)
        shot = torch.arange(len(rows)) // (len(rows) // n)  # the first of each class, the second of each, ...
        return rows, shot >= n - math.ceil(n / HELD_OUT)
    shuffled = order(key(DRAW, seed, draw, torch.arange(len(targets)))).tolist()
    taken: list[int] = []
    for shown in (targets == 1).T:
        have = int(shown[taken].sum())
        fresh = [row for row in shuffled if shown[row] and row not in taken]
        taken += fresh[: max(0, n - have)]
    return torch.tensor(taken), torch.arange(len(taken)) % HELD_OUT == 0
