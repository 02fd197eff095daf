"""Watches a run in the first process: measures, scores, judges its health, logs and saves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from manyview.config.config import Config, plain
from manyview.core import distributed
from manyview.core.sample import Batch
from manyview.data import Loader
from manyview.data.factory import some
from manyview.diagnose.measures import flat_share, validation
from manyview.encoders import Towers
from manyview.features.preprocess import EncoderInput
from manyview.methods import Method
from manyview.training import build, messages, pipelines, run_data
from manyview.training.evaluators import evaluators, make_probe
from manyview.training.run import FORMAT, RunFolder, encoder_file
from manyview.training.run_log import UNTIMED, RunLog
from manyview.training.state import RunState

FLAT = slice(0, 64)  # pictures of a batch that are looked at for flat ones
RANDOM = "untrained/"  # before the name of a score: that of an untrained encoder, where a run begins with weights
BETWEEN = 0.1  # seconds that pass before something is shown again, at least
TIMED = 5  # steps, before the run's time is foreseen
GAIN_ERROR = "gain_error/"  # before the name of a score: the standard error of its gain over the untrained one
VALIDATED = 256  # held-out images that the loss is asked about at a time, at most


class Monitor:
    """Measures and logs a run, and saves its checkpoints."""

    def __init__(
        self, folder: RunFolder, data: run_data.RunData, method: Method, loader: Loader, state: RunState, log: RunLog
    ) -> None:
        self.folder, self.config, self.data, self.log = folder, folder.config, data, log
        self.method, self.loader, self.state = method, loader, state
        self.evaluators = evaluators(method, data, self.config, loader.device)
        self.probe = make_probe(data, self.config, loader.device)
        self._validate = validation_of(data, self.config, method, loader) if self.evaluators else None
        self._lap = self._saved = time.monotonic()
        self._shown = -math.inf
        self._first: tuple[int, float] | None = None  # step and seconds from which on steps are timed
        self._foreseen, self._score_seconds = bool(state.step), 0.0
        self._told_held = False

    def begin(self, cautions: list[str]) -> None:
        """Prints the introduction, and scores the untrained encoders."""
        for line in messages.introduction(self.config, self.data, self.method, self.state):
            self.log.say(line)
        for line in cautions:
            self.log.warn(line)
        self.log.say(f"run folder {self.log.folder}")
        if self.state.step:
            self.log.say(f"going on after step {self.state.step:,} of {self.state.total:,}")
        elif self.evaluators:
            if self.config.encoder["pretrained"]:
                self._score_random()
            self.lap()
            self.score()
            self._score_seconds = self.lap()
            for line in messages.untrained(self.state):
                self.log.say(line)
        self.log.begin()
        self.lap()
        self._saved = time.monotonic()

    def report(self, losses: list[float], step: dict[str, float], batch: Batch, norm: Tensor | None, lr: float) -> None:
        """Judges the run's health, and writes a line of metrics.

        losses  `RunState.mean_losses`; none where no step had a pair to compare
        """
        state, health = self.state, self.state.health
        gradient = 0.0 if norm is None else float(norm)
        if not losses:
            self._write({"lr": lr, "gradient_norm": gradient})
            return
        loss, *told = losses
        view, (pictures, *_) = next(iter(batch.views(FLAT).items()))
        if batch.present:
            pictures = pictures[batch.present[view][FLAT]]  # what is missing is made of zeros
        before = health.verdict().short
        health.update(
            state.step, step, loss=loss, gradient=gradient,
            unreadable=len(self.loader.unreadable) / len(self.loader.dataset),
            flat=flat_share(pictures) if len(pictures) else 0.0,
            scores=state.fresh_scores, untrained=state.untrained_scores, errors=state.gain_errors(),
        )  # fmt: skip
        state.fresh_scores = {}
        verdict = health.verdict()
        names = [f"{kind}/{term.name}" for kind in ("loss", "bound") for term in self.method.terms]
        terms = {name: value for name, value in zip(names, told, strict=False) if not math.isnan(value)}
        judged = {"health": verdict.word, **{f"health/{view}": word for view, word in verdict.views.items()}}
        self._write({"loss": loss, **terms, "lr": lr, "gradient_norm": gradient, **step, **judged})
        if verdict.short != before:
            speak = self.log.warn if verdict.level in ("warning", "bad") else self.log.say
            speak(f"step {state.step}: {verdict.text}")

    def score(self) -> None:
        """Scores the encoders as they are, and computes the loss on held-out images. Needs evaluators."""
        assert self._validate is not None
        scores = self._scores(self.method.towers)
        state = self.state
        state.scored(scores)
        errors = {GAIN_ERROR + name: error for name, error in state.gain_errors().items() if name in scores}
        over_random = {name: state.gain_error_over_random(name) for name in scores}
        errors |= {RANDOM + GAIN_ERROR + name: error for name, error in over_random.items() if error is not None}
        self._write({**scores, **(errors if state.step else {}), **self._validate(progress=state.progress)})

    def foresee(self) -> None:
        """Estimates how long the run will take, once some steps are timed after the slow first ones."""
        state = self.state
        if self._foreseen or state.step < UNTIMED:
            return
        step, seconds = self._first = self._first or (state.step, state.seconds)
        if state.step - step < TIMED or (state.seconds - seconds < 1 and not state.done):
            return
        self._foreseen = True
        every = state.config.evaluate_every * state.per_epoch
        scores = state.total // every if every and self.evaluators else 0
        left = (state.seconds - seconds) / (state.step - step) * (state.total - state.step)
        for line in messages.ahead(self.config, left + scores * self._score_seconds):
            self.log.say(line)

    def tell_held(self) -> None:
        """Reports after the first epoch how many decoded images are in memory."""
        if self._told_held or not self.state.epoch_over or self.state.done:
            return
        self._told_held = True
        for line in messages.held(self.loader):
            self.log.say(line)

    def _score_random(self) -> None:
        """Scores an untrained encoder of the same kind, from which the gain over random weights is computed."""
        with torch.random.fork_rng():
            drawn = build.unstarted(self.config, self.data.channels, begun=True).to(self.loader.device)
        scores = self._scores(drawn.towers)
        self.state.scored_random(scores)
        self._write({RANDOM + name: score for name, score in scores.items()})

    def _scores(self, towers: Towers) -> dict[str, float]:
        scores = {name: value for each in self.evaluators for name, value in each(towers).items()}
        if self.probe is not None and self.state.probe_due:
            scores |= self.probe(towers)
        return scores

    def show(self) -> None:
        """Shows the progress of the run every now and then."""
        state, over = self.state, self.state.epoch_over or self.state.done
        if not over and time.monotonic() - self._shown < BETWEEN:
            return
        facts = [f"epoch {state.epoch}"]
        facts += [] if state.running_loss is None else [f"loss {state.running_loss:.4g}"]
        speed = [f"{self.loader.seen(state.step) / state.seconds:,.0f} images/s"] if state.seconds else []
        scores = messages.scores(state)
        facts += [*speed, *scores]
        facts += [state.health.verdict().short] if state.health.measured else []
        self.log.show(state.step, facts, spare=[*speed, *reversed(scores)], now=over or self._shown < 0)
        self._shown = time.monotonic()

    @cached_property
    def inputs(self) -> dict[str, EncoderInput]:
        """The description of each encoder's input, which is needed to load it."""
        return pipelines.inputs(self.config, self.data)

    def save(self, state: dict[str, Any]) -> None:
        """Writes a checkpoint; after an epoch that `snapshots` names it is kept for ever."""
        self.log.sync()
        epoch = round(self.state.epochs)
        snapshot = epoch if self.state.epoch_over and epoch in self.config.snapshots else None
        about = {
            "format": FORMAT,
            "channels": self.data.channels,
            "data": self.data.fingerprint,
            "settings": plain(self.config.fixed()),
            "inputs": {view: each.to_json() for view, each in self.inputs.items()},
            "encoders": [encoder_file(view) for view in self.method.towers.encoders],
            "unreadable": dict(self.loader.unreadable),
            "at_once": self.loader.at_once,
            "world": distributed.world_size(),
            "state": self.state.state_dict(),
        }
        self.folder.checkpoints.save({**about, **state}, self.state.step, epoch_snapshot=snapshot)
        self._saved = time.monotonic()

    @property
    def save_due(self) -> bool:
        """Whether the last checkpoint is too old."""
        return time.monotonic() - self._saved > 60 * self.config.checkpoint_minutes

    def lap(self) -> float:
        """Returns the seconds since the last call."""
        before, self._lap = self._lap, time.monotonic()
        return self._lap - before

    def _write(self, values: dict[str, Any]) -> None:
        self.log.write(self.state.step, values, epoch=self.state.epoch, seconds=round(self.state.seconds, 3))


def validation_of(
    data: run_data.RunData, config: Config, method: Method, loader: Loader
) -> Callable[..., dict[str, float]]:
    """Computes the mean loss and measures over batches of held-out images, the same batches every time.

    CACR (section 5.1) reports its entropies so, on every batch of the validation data. Batches are as large as
    training's, or have `VALIDATED` images; an incomplete one is left out.
    """
    assert data.test is not None
    images = (
        data.test if config.validation_images is None else some(data.test, config.validation_images, labelled=False)
    )
    size, pipeline = min(config.batch_size, len(images), VALIDATED), pipelines.training(config, data.views, method)
    held_out = Loader(
        images, pipeline, size, seed=config.seed, device=loader.device, workers=config.workers, max_unreadable=1.0,
        examples=data.met,
    )  # fmt: skip

    def measured(*, progress: float) -> dict[str, float]:
        found = []
        for batch in held_out.epoch(0):
            found.append(validation(method, batch.views(), batch, progress=progress))
            if not found[0]:
                break  # of this method nothing can be said
        return _means(found)

    return measured


def _means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Averages each measure over the batches that have it."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: fmean(each[name] for each in found if name in each) for name in names}
