"""What the first process does beside training: measure, score, judge the run's health, log and save."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from manyview.config.config import Config
from manyview.core.sample import Batch
from manyview.data import Loader
from manyview.diagnose.health import Health
from manyview.diagnose.measures import flat_share, measured_of, validation
from manyview.methods import Contrast, Method
from manyview.methods.method import Objective
from manyview.training import build, messages
from manyview.training.evaluators import evaluators
from manyview.training.failures import NO_NUMBER, diverged, finite
from manyview.training.folder import FORMAT, RunFolder
from manyview.training.run import encoder_file
from manyview.training.run_log import RunLog
from manyview.training.state import RunState

FLAT = slice(0, 64)  # pictures of a batch that are looked at for flat ones
BETWEEN = 0.1  # seconds that pass before something is shown again, at least
VALIDATED = 256  # held-out images that the loss is asked about, at most


class Monitor:
    """Measures and logs a run, and saves its checkpoints."""

    def __init__(
        self, folder: RunFolder, data: build.RunData, method: Method, loader: Loader, state: RunState, log: RunLog
    ) -> None:
        self.folder, self.config, self.data, self.log = folder, folder.config, data, log
        self.method, self.loader, self.state = method, loader, state
        self.evaluators = evaluators(data, self.config, loader.device)
        self._validate = _validation(data, self.config, method, loader) if self.evaluators else _nothing
        self.clock, self._shown = Clock(), -BETWEEN

    def begin(self, cautions: list[str]) -> None:
        """Says what is about to happen, and scores the untrained encoders."""
        for line in messages.introduction(self.config, self.data, self.method, self.state):
            self.log.say(line)
        for line in cautions:
            self.log.warn(line)
        self.log.say(f"run folder {self.log.folder}")
        if self.state.step:
            self.log.say(f"going on after step {self.state.step:,} of {self.state.total:,}")
        elif self.evaluators:
            self.score()
            for name, value in self.state.scores.items():
                self.log.say(f"{messages.score_name(name)} of the untrained encoder {value:.1%}")
        self.log.begin()
        self.clock = Clock()

    def measures(self, objective: Objective) -> dict[str, float]:
        """What the first contrast of the step tells, against the negatives that its loss has met."""
        for term in self.method.terms:
            if isinstance(term, Contrast):
                for triple in objective.terms[term.name].triples:
                    if len(triple.query):
                        return measured_of(term, triple)
        return {}

    def report(
        self, losses: list[float], measured: dict[str, float], batch: Batch, norm: Tensor | None, lr: float
    ) -> None:
        """Asks whether the run is well, and writes a line of metrics.

        losses  total and terms, as means since the last line
        """
        state, health = self.state, self.state.health
        loss, *terms = losses
        gradient = 0.0 if norm is None else float(norm)
        view, (pictures, *_) = next(iter(batch.views(FLAT).items()))
        if batch.present:
            pictures = pictures[batch.present[view][FLAT]]  # what is missing is made of zeros
        before = health.verdict().word
        health.update(
            state.step, measured, loss=loss, gradient=gradient,
            unreadable=len(self.loader.unreadable) / len(self.loader.dataset),
            flat=flat_share(pictures) if len(pictures) else 0.0,
            knn=state.fresh_scores.get("knn"), untrained_knn=state.untrained_scores.get("knn"),
        )  # fmt: skip
        state.fresh_scores = {}
        verdict = health.verdict()
        named = {f"loss/{term.name}": value for term, value in zip(self.method.terms, terms, strict=False)}
        self._write({"loss": loss, **named, "lr": lr, "gradient_norm": gradient, **measured, "health": verdict.word})
        if verdict.word != before:
            speak = self.log.say if verdict.level == "healthy" else self.log.warn
            speak(f"step {state.step}: {verdict.text}")

    def score(self) -> None:
        """Scores the encoders as they stand, and asks the loss about held-out images."""
        encoders = self.method.towers.encoders
        self.state.scored({name: value for each in self.evaluators for name, value in each(encoders).items()})
        self._write({**self.state.scores, **self._validate(progress=progress(self.config, self.state))})

    def show(self) -> None:
        """Shows where the run is, now and then, for who watches it."""
        state, over = self.state, self.state.epoch_over or self.state.done
        if not over and time.monotonic() - self._shown < BETWEEN:
            return
        self._shown = time.monotonic()
        speed = self.config.batch_size * state.step / state.seconds if state.seconds else None
        health = state.health.verdict().word if state.health.measured else None
        self.log.show(
            state.step, epoch=state.epoch, loss=state.loss, speed=speed, knn=state.scores.get("knn"), health=health,
            epoch_over=over,
        )  # fmt: skip

    def check(self, batch: Batch) -> None:
        """Refuses to score or save weights that are no numbers."""
        if not finite(self.method):
            raise diverged(NO_NUMBER, self.config, self.state.step, batch, self.method, self.folder.path)

    def save(self, state: dict[str, Any]) -> None:
        """Writes a checkpoint, which is kept for ever after an epoch that the settings name."""
        self.log.sync()
        epoch = round(self.state.epochs)
        snapshot = epoch if self.state.epoch_over and epoch in self.config.snapshots else None
        about = {
            "format": FORMAT,
            "channels": self.data.channels,
            "data": self.data.fingerprint,
            "encoders": [encoder_file(view) for view in self.method.towers.encoders],
            "unreadable": dict(self.loader.unreadable),
            "at_once": self.loader.at_once,
            "state": self.state.state_dict(),
        }
        self.folder.checkpoints.save({**about, **state}, self.state.step, epoch_snapshot=snapshot)
        self.clock.mark()

    @property
    def save_due(self) -> bool:
        """Whether the last checkpoint is too old."""
        return self.clock.since_mark() > 60 * self.config.checkpoint_minutes

    def _write(self, values: dict[str, Any]) -> None:
        self.log.write(self.state.step, values, epoch=self.state.epoch, seconds=round(self.state.seconds, 3))


def progress(config: Config, state: RunState) -> float:
    """The share of the run that is done after this epoch, which a loss may depend on."""
    return min(1.0, (state.step // state.per_epoch + 1) / config.epochs)


def new_state(config: Config, method: Method, per_epoch: int) -> RunState:
    planned = max(1, round(config.epochs * per_epoch))
    coupled = any(isinstance(term, Contrast) and term.coupled for term in method.terms)
    return RunState(min(planned, config.max_steps or planned), planned, per_epoch, Health(coupled=coupled))


def _validation(data: build.RunData, config: Config, method: Method, loader: Loader) -> Callable[..., dict[str, float]]:
    """What the loss would say of one batch of held-out images; their views are made once."""
    assert data.test is not None
    size, pipeline = min(config.batch_size, len(data.test), VALIDATED), build.pipeline(config, data.views, method)
    held_out = Loader(
        data.test, pipeline, size, seed=config.seed, device=loader.device, workers=config.workers, max_unreadable=1.0
    )
    batch = next(held_out.epoch(0))
    return partial(validation, method, batch.views(), batch)


class Clock:
    """Seconds between two laps, and since the last mark."""

    def __init__(self) -> None:
        self._lap = self._mark = time.monotonic()

    def lap(self) -> float:
        before, self._lap = self._lap, time.monotonic()
        return self._lap - before

    def mark(self) -> None:
        self._mark = time.monotonic()

    def since_mark(self) -> float:
        return time.monotonic() - self._mark


def _nothing(progress: float) -> dict[str, float]:
    return {}
