"""The progress of a run: what a checkpoint holds besides networks and optimiser."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from manyview.config.config import Config
from manyview.core.distributed import exchange
from manyview.diagnose.health import Health
from manyview.features.gain import answers, gain_error
from manyview.methods import Method
from manyview.training.optimizers import Schedule

SAVED: dict[str, Any] = {
    "step": int, "seconds": float, "losses": list, "loss": float | None, "scores": dict, "fresh_scores": dict,
    "untrained_scores": dict, "health": dict,
}  # fmt: skip
ANSWERS = ("answers", "untrained_answers", "random_scores", "random_answers")
"""What checkpoints of earlier versions lack, and can."""
RECENT = 50  # steps, of whose losses the mean is shown


@dataclass
class RunState:
    """The progress of a run, and what is due at its current step. What changes is saved in checkpoints."""

    config: Config
    planned: int  # steps of all epochs, which schedules span
    total: int  # less where max_steps ends a run early
    per_epoch: int
    health: Health
    step: int = 0  # steps done
    seconds: float = 0.0  # over all sittings
    losses: list[list[float]] = field(default_factory=list)  # rows of `stepped` since the last line of metrics
    loss: float | None = None  # of the last step that is known
    scores: dict[str, float] = field(default_factory=dict)  # the evaluators' last
    fresh_scores: dict[str, float] = field(default_factory=dict)  # the same, until the run's health has been told
    untrained_scores: dict[str, float] = field(default_factory=dict)  # of what the run began with, weights or none
    random_scores: dict[str, float] = field(default_factory=dict)  # of drawn weights, where it began with others
    answers: dict[str, Tensor] = field(default_factory=dict)  # by score, which of the last ones were right
    untrained_answers: dict[str, Tensor] = field(default_factory=dict)
    random_answers: dict[str, Tensor] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))  # losses, for who watches
    pending: list[Tensor] = field(default_factory=list)  # this process's share of losses that others do not know yet

    @classmethod
    def begun(cls, config: Config, method: Method, per_epoch: int) -> RunState:
        planned = max(1, round(config.epochs * per_epoch))
        coupled = any(term.coupled for term in method.terms)
        return cls(config, planned, min(planned, config.max_steps or planned), per_epoch, Health(coupled=coupled))

    @property
    def done(self) -> bool:
        return self.step >= self.total

    @property
    def epochs(self) -> float:
        """The number of epochs done."""
        return self.step / self.per_epoch

    @property
    def epoch(self) -> int:
        """The epoch of the last step, counted from 1; 0 before the first."""
        return -(-self.step // self.per_epoch)

    @property
    def epoch_over(self) -> bool:
        return self.step % self.per_epoch == 0

    @property
    def progress(self) -> float:
        """The share of the run that is done after this epoch, which a loss may depend on."""
        return min(1.0, (self.step // self.per_epoch + 1) / self.config.epochs)

    def lr(self, schedule: Schedule) -> float:
        """Returns the learning rate of the current step."""
        warmup, epochs = self.config.schedule["warmup"], self.epochs
        if self.config.schedule["per"] == "epoch" and epochs >= warmup:  # a warm-up rises with every step
            number = self.step // self.per_epoch + self.config.schedule["first_epoch"]
            epochs = min(max(number, warmup), self.config.epochs)
        rate: float = self.config.optimizer["lr"] * schedule(epochs, self.config.epochs)
        return rate

    @property
    def report_due(self) -> bool:
        """Whether the current step is logged; the first one is, for comparison with later ones."""
        return self.step == 0 or (self.step + 1) % self.config.health_every == 0 or self.step + 1 == self.total

    @property
    def score_due(self) -> bool:
        return self.done or (self.epoch_over and round(self.epochs) % self.config.evaluate_every == 0)

    @property
    def probe_due(self) -> bool:
        """Whether a score that is due includes a linear probe: the first, the last, and one every so many epochs."""
        return self.done or (self.epoch_over and round(self.epochs) % self.config.probe_every == 0)

    def scored_since(self, name: str) -> bool:
        """Whether a score has been measured after the first step."""
        linear = name.partition("/")[0] == "linear"
        every = self.config.probe_every if linear else self.config.evaluate_every
        return self.step > 0 and (self.done or (every > 0 and self.step >= every * self.per_epoch))

    @property
    def save_due(self) -> bool:
        every = self.config.checkpoint_steps
        return self.epoch_over or self.done or (every is not None and self.step % every == 0)

    def stepped(self, losses: Tensor | None) -> None:
        """Counts a step with its losses: the total, and those logged of each term, NaN for one without a pair.

        None for a step in which no term had a pair. A GPU is asked for them only when they are reported.
        """
        self.step += 1
        if losses is None:
            return
        self.pending.append(losses)
        if losses.device.type == "cpu":
            self.loss = float(losses[0])
            self.recent.append(self.loss)

    def settle_losses(self) -> None:
        """Averages the pending losses over all processes. All of them must call it at the same step."""
        if not self.pending:
            return
        words = exchange(torch.cat(self.pending).tolist())
        means = [sum(each) / len(words) for each in zip(*words, strict=True)]
        width = len(self.pending[0])
        if self.pending[0].device.type != "cpu":
            self.recent.extend(means[::width])
        self.losses += [means[start : start + width] for start in range(0, len(means), width)]
        self.loss = self.losses[-1][0]
        self.pending.clear()

    def mean_losses(self) -> list[float]:
        """Returns the means over the steps since the last line of metrics, and starts anew; none without steps.

        The mean of a term is over the steps in which it had a pair; NaN where it never had.
        """
        known = [[each for each in column if not math.isnan(each)] for column in zip(*self.losses, strict=True)]
        self.losses.clear()
        return [sum(each) / len(each) if each else math.nan for each in known]

    @property
    def running_loss(self) -> float | None:
        """The mean of the last known losses, since that of a single step varies."""
        return fmean(self.recent) if self.recent else self.loss

    @property
    def diverged(self) -> float | None:
        """A loss that is not finite, if there was any since the last line of metrics.

        Where no GPU has to be waited for, this process's own is known at once; those of others when losses are settled.
        """
        known = [*(row[0] for row in self.losses), *([] if self.loss is None else [self.loss])]
        return next((loss for loss in known if not math.isfinite(loss)), None)

    def scored(self, scores: dict[str, float]) -> None:
        """Records new scores; one that is not measured every time stays until it is measured again."""
        plain = {name: float(score) for name, score in scores.items()}
        self.scores, self.fresh_scores = {**self.scores, **plain}, plain
        self.answers = {**self.answers, **answers(scores)}
        if self.step == 0:
            self.untrained_scores, self.untrained_answers = plain, dict(self.answers)

    def gain_error(self, name: str) -> float | None:
        """Returns the standard error of a score's gain over the run's start, on the same images."""
        return gain_error(self.answers.get(name), self.untrained_answers.get(name))

    def gain_errors(self) -> dict[str, float]:
        """Returns `gain_error` of every score that has one."""
        errors = {name: self.gain_error(name) for name in self.answers}
        return {name: error for name, error in errors.items() if error is not None}

    def scored_random(self, scores: dict[str, float]) -> None:
        """Records the scores of an untrained encoder, for a run that begins with weights."""
        self.random_scores = {name: float(score) for name, score in scores.items()}
        self.random_answers = answers(scores)

    def gain_error_over_random(self, name: str) -> float | None:
        """Returns the standard error of its gain over an untrained encoder, for a run that began with weights."""
        return gain_error(self.answers.get(name), self.random_answers.get(name))

    def state_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in (*SAVED, *ANSWERS) if name != "health"}
        return {**plain, "health": self.health.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.health.load_state_dict(state["health"])
        for name in SAVED:
            if name != "health":
                setattr(self, name, state[name])
        for name in ANSWERS:
            setattr(self, name, state.get(name, {}))


def odd_entries(state: dict[str, Any]) -> list[str]:
    """Lists the names that a state dict lacks or has of another kind."""
    odd = [name for name, kind in SAVED.items() if not isinstance(state.get(name, ...), kind)]
    return odd or ([] if state["step"] >= 0 else ["step"])
