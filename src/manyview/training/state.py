"""Where a run is: what a checkpoint holds besides networks and optimiser."""

from __future__ import annotations

from dataclasses import dataclass, field

from manyview.diagnose.health import Health
from manyview.training.checkpoint import State


@dataclass
class Progress:
    """Where a run is. All of it goes into the checkpoint."""

    total: int
    per_epoch: int
    health: Health
    step: int = 0  # steps done
    seconds: float = 0.0  # over all sittings
    losses: list[float] = field(default_factory=list)  # since the last line of metrics
    loss: float | None = None  # of the last step
    knn: float | None = None
    fresh_knn: float | None = None  # the same, until the run's health has been told
    untrained_knn: float | None = None

    @property
    def done(self) -> bool:
        return self.step >= self.total

    @property
    def epochs(self) -> float:
        """Epochs done."""
        return self.step / self.per_epoch

    @property
    def epoch_over(self) -> bool:
        return self.step % self.per_epoch == 0

    def stepped(self, loss: float) -> None:
        self.step += 1
        self.loss = loss
        self.losses.append(loss)

    def scored(self, knn: float) -> float:
        self.knn = self.fresh_knn = knn
        return knn

    def state(self) -> State:
        plain = ("step", "seconds", "losses", "loss", "knn", "fresh_knn", "untrained_knn")
        return {**{name: getattr(self, name) for name in plain}, "health": self.health.state_dict()}

    def restore(self, state: State) -> None:
        self.health.load_state_dict(state.pop("health"))
        for name, value in state.items():
            setattr(self, name, value)
