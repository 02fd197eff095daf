"""Where a run is: what a checkpoint holds besides networks and optimiser."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from manyview.core.distributed import exchange
from manyview.diagnose.health import Health


@dataclass
class RunState:
    """Where a run is. All of it goes into the checkpoint."""

    total: int
    per_epoch: int
    health: Health
    step: int = 0  # steps done
    seconds: float = 0.0  # over all sittings
    losses: list[float] = field(default_factory=list)  # since the last line of metrics, of all processes
    loss: float | None = None  # of the last step that is known
    scores: dict[str, float] = field(default_factory=dict)  # the evaluators' last
    fresh_scores: dict[str, float] = field(default_factory=dict)  # the same, until the run's health has been told
    untrained_scores: dict[str, float] = field(default_factory=dict)
    pending: list[Tensor] = field(default_factory=list)  # this process's losses that the others do not know yet

    @property
    def done(self) -> bool:
        return self.step >= self.total

    @property
    def epochs(self) -> float:
        """Epochs done."""
        return self.step / self.per_epoch

    @property
    def epoch(self) -> int:
        """The epoch that the last step was in, counted from 1; 0 before the first."""
        return -(-self.step // self.per_epoch)

    @property
    def epoch_over(self) -> bool:
        return self.step % self.per_epoch == 0

    def stepped(self, loss: Tensor) -> None:
        """Counts a step. A loss on a GPU is asked for its value only when somebody wants to know it."""
        self.step += 1
        self.pending.append(loss.detach())
        if loss.device.type == "cpu":
            self.loss = float(loss.detach())

    def settle_losses(self) -> list[float]:
        """Makes the pending losses the means over all processes. To be called by all of them at the same step."""
        if self.pending:
            words = exchange([float(loss) for loss in self.pending])
            found = [sum(step) / len(words) for step in zip(*words, strict=True)]
            self.pending.clear()
            self.losses += found
            self.loss = found[-1]
        return self.losses

    def not_finite(self) -> int | None:
        """The step, counted from 0, at which the loss was first found to be no number."""
        odd = [place for place, loss in enumerate(reversed(self.losses), 1) if not math.isfinite(loss)]
        return self.step - max(odd) if odd else None

    def scored(self, scores: dict[str, float]) -> None:
        self.scores = self.fresh_scores = scores
        if self.step == 0:
            self.untrained_scores = scores

    def state_dict(self) -> dict[str, Any]:
        plain = ("step", "seconds", "losses", "loss", "scores", "fresh_scores", "untrained_scores")
        return {**{name: getattr(self, name) for name in plain}, "health": self.health.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.health.load_state_dict(state["health"])
        for name, value in state.items():
            if name != "health":
                setattr(self, name, value)
